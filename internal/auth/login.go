package auth

import (
	"fmt"
	"net"
	"slices"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
)

// Identity is a user who has logged in, as the catalog knew them at that time. It is immutable.
type Identity struct {
	Name string
	Tags []string
}

// HasTag reports whether the user has a tag such as "administrator".
func (id *Identity) HasTag(tag string) bool { return slices.Contains(id.Tags, tag) }

// MaySignAs reports whether the user may publish messages whose user-id property is name: their own name, or any for
// those with the tag "impersonator".
func (id *Identity) MaySignAs(name string) bool { return name == id.Name || id.HasTag("impersonator") }

// Refusal is why a login failed: the reason is for the log, and Unwrap gives the *amqperr.Error for the client.
type Refusal struct {
	User   string // as claimed; "" if the response could not be read
	Reason string
	client *amqperr.Error
}

// Error returns the reason.
func (r *Refusal) Error() string { return r.Reason }

// Unwrap returns what the client is told.
func (r *Refusal) Unwrap() error { return r.client }

// Authenticator checks logins. It has no state of its own and may be used by any goroutine.
type Authenticator struct {
	lookup       func(name string) *catalog.User
	loopbackOnly func(name string) bool
}

// New returns an Authenticator for the users that lookup returns (nil for nobody). Those for whom loopbackOnly holds may
// log in from this machine only.
func New(lookup func(name string) *catalog.User, loopbackOnly func(name string) bool) *Authenticator {
	return &Authenticator{lookup, loopbackOnly}
}

// Mechanisms returns the SASL mechanisms in order of preference.
func (a *Authenticator) Mechanisms() []string { return []string{plain, amqplain} }

// Login checks a SASL response of a client at peer. The error is a *Refusal: 503 for a mechanism that is not offered, 502
// for a response that cannot be read, 403 for everything else, all of connection scope.
func (a *Authenticator) Login(mechanism string, response []byte, peer net.Addr) (*Identity, error) {
	var name, password, problem string
	switch mechanism {
	case plain:
		name, password, problem = parsePlain(response)
	case amqplain:
		name, password, problem = parseAMQPlain(response)
	default:
		return nil, &Refusal{"", fmt.Sprintf("unknown authentication mechanism %q", mechanism), amqperr.UnknownMechanism(mechanism)}
	}
	if problem != "" {
		return nil, &Refusal{"", fmt.Sprintf("%s response is malformed: %s", mechanism, problem), amqperr.MalformedLogin(mechanism, problem)}
	}
	u := a.lookup(name)
	if !CheckPassword(u, password) {
		reason := fmt.Sprintf("user '%s': no such user, or wrong password", name)
		if password == "" {
			reason = fmt.Sprintf("user '%s': empty passwords are not accepted", name)
		}
		return nil, &Refusal{name, reason, amqperr.LoginRefused(mechanism)}
	}
	if a.loopbackOnly(name) && !isLoopback(peer) {
		short := fmt.Sprintf("user '%s' can only connect via localhost", name)
		return nil, &Refusal{
			User: name,
			Reason: short + ". To let clients in from other machines add a user: 'holdfast ctl add_user NAME PASSWORD', " +
				"then 'holdfast ctl set_permissions NAME \".*\" \".*\" \".*\"'. The setting loopback_users lists who is held to this rule",
			client: amqperr.LoginRefusedReason(mechanism, short+"; add a user for other machines with 'holdfast ctl add_user' and 'holdfast ctl set_permissions'"),
		}
	}
	return &Identity{Name: u.Name, Tags: u.Tags}, nil
}

// isLoopback reports whether a client is on this machine. A Unix socket is, an address of any other kind is not.
func isLoopback(peer net.Addr) bool {
	switch a := peer.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}
