package broker

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"holdfast/internal/amqperr"
	"holdfast/internal/auth"
	"holdfast/internal/catalog"
	"holdfast/internal/wire"
)

// AdminErrorKind tells the management side what kind of refusal an AdminError is.
type AdminErrorKind uint8

// The kinds of refusal of an administrative operation.
const (
	// NotFound means that what the operation names does not exist.
	NotFound AdminErrorKind = iota + 1
	// Exists means that what the operation would make exists already.
	Exists
	// Invalid means that the operation's arguments make no sense.
	Invalid
	// Rejected means that the thing is there but will not have it (in use, exclusive, not empty).
	Rejected
	// Unavailable means that the broker cannot do it now; the text says why.
	Unavailable
)

// AdminError is the answer to an administrative operation that was not carried out.
type AdminError struct {
	Kind AdminErrorKind
	Text string
}

// Error returns the text shown to the operator.
func (e *AdminError) Error() string { return e.Text }

// User is a row of the list of users.
type User struct {
	Name string   `json:"name"`
	Tags []string `json:"tags"`
}

// Permission is a row of the list of permissions: what user may do in vhost.
type Permission struct {
	User      string `json:"user"`
	VHost     string `json:"vhost"`
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

// VHost is a row of the list of virtual hosts.
type VHost struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
}

// AdminPublish is a message published from the management side.
type AdminPublish struct {
	VHost, Exchange, RoutingKey string
	// Properties are by AMQP's names (content_type, delivery_mode, headers, ...).
	Properties map[string]any
	Body       []byte
}

// AdminMessage is a message fetched by the management side.
type AdminMessage struct {
	Exchange    string         `json:"exchange"`
	RoutingKey  string         `json:"routing_key"`
	Redelivered bool           `json:"redelivered"`
	Remaining   uint64         `json:"message_count"`
	Properties  map[string]any `json:"properties"`
	Body        []byte         `json:"payload"`
}

// AdminQueue asks the management side's way for a queue.
type AdminQueue struct {
	VHost, Name         string
	Durable, AutoDelete bool
	Arguments           wire.Table
}

// adminError turns what a lower room answered into what an operator is told.
func adminError(err error) error {
	if err == nil {
		return nil
	}
	var mistake *amqperr.Error
	if errors.As(err, &mistake) {
		if mistake == nil {
			return nil
		}
		_, text, _ := strings.Cut(mistake.Text, " - ")
		kind := Rejected
		switch mistake.Code {
		case amqperr.NotFound:
			kind = NotFound
		case amqperr.InternalError:
			kind = Unavailable
		}
		return &AdminError{kind, text}
	}
	if errors.Is(err, errTimedOut) || errors.Is(err, ErrOverdue) {
		return &AdminError{Unavailable, "no answer in time: the node waits for the disk, or is overloaded"}
	}
	return &AdminError{Unavailable, err.Error()}
}

func noVHost(name string) error {
	return &AdminError{NotFound, fmt.Sprintf("Virtual host '%s' does not exist", name)}
}

// checkText refuses what no client could say: a short string of the protocol.
func checkText(what, text string) error {
	if len(text) > 255 || !utf8.ValidString(text) {
		return &AdminError{Invalid, what + " must be UTF-8 of at most 255 bytes"}
	}
	return nil
}

// command has the catalog carry out a durable command of an operator.
func (b *Broker) command(cmd []byte) (*catalog.Result, error) {
	r, err := b.propose(cmd, true)
	return r, adminError(err)
}

// AddUser adds a user.
func (b *Broker) AddUser(name, password string) error {
	if err := checkText("the name of a user", name); err != nil {
		return err
	}
	_, err := b.command(catalog.AddUser(catalog.User{Name: name, Hash: auth.HashPassword(password), Algorithm: auth.Algorithm}))
	return err
}

// ChangePassword gives a user a new password.
func (b *Broker) ChangePassword(name, password string) error {
	_, err := b.command(catalog.SetPassword(name, auth.HashPassword(password), auth.Algorithm))
	return err
}

// DeleteUser removes a user with its permissions and closes its connections.
func (b *Broker) DeleteUser(name string) error {
	_, err := b.command(catalog.DeleteUser(name))
	if b.view().User(name) == nil { // be it that the disk has not answered yet
		b.closeWhere(func(c *Conn) bool { return c.user.Name == name }, amqperr.UserDeleted(name))
	}
	return err
}

// SetUserTags replaces the tags of a user.
func (b *Broker) SetUserTags(name string, tags []string) error {
	_, err := b.command(catalog.SetTags(name, tags))
	return err
}

// SetPermissions says what a user may do in a vhost.
func (b *Broker) SetPermissions(vhost, user, configure, write, read string) error {
	for _, pattern := range []struct{ name, text string }{{"configure", configure}, {"write", write}, {"read", read}} {
		if err := auth.CheckPattern(pattern.text); err != nil {
			return &AdminError{Invalid, fmt.Sprintf("the %s pattern is not a regular expression: %v", pattern.name, err)}
		}
	}
	_, err := b.command(catalog.SetPermissions(catalog.Permission{
		User: user, VHost: vhost, Configure: configure, Write: write, Read: read,
	}))
	return err
}

// ClearPermissions takes away what a user may do in a vhost.
func (b *Broker) ClearPermissions(vhost, user string) error {
	_, err := b.command(catalog.ClearPermissions(user, vhost))
	return err
}

// AuthenticateUser returns nil if the name and password fit.
func (b *Broker) AuthenticateUser(name, password string) error {
	u := b.view().User(name)
	if u == nil || !auth.CheckPassword(u, password) {
		return &AdminError{Rejected, fmt.Sprintf("user '%s' does not exist or has another password", name)}
	}
	return nil
}

// AddVHost adds a virtual host; one that is there is no error.
func (b *Broker) AddVHost(name, description string, tags []string) error {
	if err := checkText("the name of a virtual host", name); err != nil {
		return err
	}
	_, err := b.command(catalog.AddVHost(name, description, tags))
	return err
}

// DeleteVHost removes a virtual host with all that is in it and closes its connections.
func (b *Broker) DeleteVHost(name string) error {
	_, err := await(b, func(done func(*catalog.Result, error)) {
		b.remove(catalog.DeleteVHost(name), true, done)
	})
	if b.view().VHost(name) == nil { // be it that the disk has not answered yet
		b.closeWhere(func(c *Conn) bool { return c.vhost == name }, amqperr.VHostDeleted(name))
	}
	return adminError(err)
}

// CloseConnection closes the connection with this name; reason is told to the client.
func (b *Broker) CloseConnection(name, reason string) error {
	if b.closeWhere(func(c *Conn) bool { return c.name == name }, amqperr.Forced(reason)) == 0 {
		return &AdminError{NotFound, fmt.Sprintf("no connection '%s'", name)}
	}
	return nil
}

// CloseAllConnections closes all connections, or those of one vhost or user if given, and says how many.
func (b *Broker) CloseAllConnections(vhost, user, reason string) int {
	return b.closeWhere(func(c *Conn) bool {
		return (vhost == "" || c.vhost == vhost) && (user == "" || c.user.Name == user)
	}, amqperr.Forced(reason))
}

// Health returns nil, or what is wrong with the node in one sentence.
func (b *Broker) Health() error {
	b.mu.Lock()
	closing := b.closing
	b.mu.Unlock()
	if closing != nil {
		return &AdminError{Unavailable, "the node is stopping: " + closing.Text}
	}
	for _, a := range b.Alarms() {
		return &AdminError{Unavailable, fmt.Sprintf("the %s alarm is on: %s", a.Kind, a.Reason)}
	}
	return nil
}
