package catalog

import "strings"

// Definitions is what exists and outlives connections, in the form of RabbitMQ's definitions files: encoding/json writes
// it with that format's field names.
type Definitions struct {
	RabbitVersion   string `json:"rabbit_version"`
	RabbitMQVersion string `json:"rabbitmq_version"`
	ProductName     string `json:"product_name"`
	ProductVersion  string `json:"product_version"`

	Users            []UserDefinition       `json:"users"`
	VHosts           []VHostDefinition      `json:"vhosts"`
	Permissions      []PermissionDefinition `json:"permissions"`
	TopicPermissions []any                  `json:"topic_permissions"`
	Parameters       []ParameterDefinition  `json:"parameters"`
	GlobalParameters []any                  `json:"global_parameters"`
	Policies         []PolicyDefinition     `json:"policies"`
	Queues           []QueueDefinition      `json:"queues"`
	Exchanges        []ExchangeDefinition   `json:"exchanges"`
	Bindings         []BindingDefinition    `json:"bindings"`
}

// UserDefinition is a user of a definitions file.
type UserDefinition struct {
	Name             string         `json:"name"`
	PasswordHash     string         `json:"password_hash"`
	HashingAlgorithm string         `json:"hashing_algorithm"`
	Tags             []string       `json:"tags"`
	Limits           map[string]any `json:"limits"`
}

// VHostDefinition is a vhost of a definitions file.
type VHostDefinition struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Tags        []string       `json:"tags"`
	Metadata    map[string]any `json:"metadata"`
	Limits      map[string]any `json:"limits"`
}

// PermissionDefinition is a permission of a definitions file.
type PermissionDefinition struct {
	User      string `json:"user"`
	VHost     string `json:"vhost"`
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

// QueueDefinition is a queue of a definitions file.
type QueueDefinition struct {
	Name       string         `json:"name"`
	VHost      string         `json:"vhost"`
	Type       string         `json:"type"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Arguments  map[string]any `json:"arguments"`
}

// ExchangeDefinition is an exchange of a definitions file.
type ExchangeDefinition struct {
	Name       string         `json:"name"`
	VHost      string         `json:"vhost"`
	Type       string         `json:"type"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Internal   bool           `json:"internal"`
	Arguments  map[string]any `json:"arguments"`
}

// BindingDefinition is a binding of a definitions file.
type BindingDefinition struct {
	Source          string         `json:"source"`
	VHost           string         `json:"vhost"`
	Destination     string         `json:"destination"`
	DestinationType string         `json:"destination_type"`
	RoutingKey      string         `json:"routing_key"`
	Arguments       map[string]any `json:"arguments"`
}

// PolicyDefinition is a policy of a definitions file.
type PolicyDefinition struct {
	VHost string `json:"vhost"`
	Name  string `json:"name"`
	PolicyValue
}

// PolicyValue is what a policy says.
type PolicyValue struct {
	Pattern    string         `json:"pattern"`
	ApplyTo    string         `json:"apply-to"`
	Definition map[string]any `json:"definition"`
	Priority   int64          `json:"priority"`
}

// ParameterDefinition is a parameter of a definitions file: an operator policy is one.
type ParameterDefinition struct {
	VHost     string      `json:"vhost"`
	Component string      `json:"component"`
	Name      string      `json:"name"`
	Value     PolicyValue `json:"value"`
}

// Definitions exports the view. Exclusive queues, predeclared and internal exchanges and the bindings of what is left out
// are not in it. compatible is the version of RabbitMQ whose format this is, version our own.
func (v *View) Definitions(compatible, version string) *Definitions {
	d := &Definitions{
		RabbitVersion: compatible, RabbitMQVersion: compatible, ProductName: "Holdfast", ProductVersion: version,
		Users: []UserDefinition{}, VHosts: []VHostDefinition{}, Permissions: []PermissionDefinition{},
		TopicPermissions: []any{}, Parameters: []ParameterDefinition{}, GlobalParameters: []any{}, Policies: []PolicyDefinition{},
		Queues: []QueueDefinition{}, Exchanges: []ExchangeDefinition{}, Bindings: []BindingDefinition{},
	}
	for u := range v.Users().All() {
		d.Users = append(d.Users, UserDefinition{u.Name, u.Hash, u.Algorithm, orEmpty(u.Tags), map[string]any{}})
	}
	for p := range v.Permissions().All() {
		d.Permissions = append(d.Permissions, PermissionDefinition(*p))
	}
	for vh := range v.VHosts().All() {
		d.VHosts = append(d.VHosts, VHostDefinition{
			vh.Name, vh.Description, orEmpty(vh.Tags),
			map[string]any{"description": vh.Description, "tags": orEmpty(vh.Tags)}, map[string]any{},
		})
		d.addVHost(v, vh)
	}
	return d
}

func (d *Definitions) addVHost(v *View, vh *VHost) {
	for q := range v.Queues(vh.Name).All() {
		if !q.Exclusive {
			d.Queues = append(d.Queues, QueueDefinition{q.Name, q.VHost, string(q.Type), q.Durable, q.AutoDelete, q.Args.Map()})
		}
	}
	for x := range v.Exchanges(vh.Name).All() {
		if !x.Internal && !isPredeclared(x.Name) {
			d.Exchanges = append(d.Exchanges, ExchangeDefinition{x.Name, x.VHost, string(x.Type), x.Durable, x.AutoDelete, x.Internal, x.Args.Map()})
		}
	}
	for b := range v.Bindings(vh.Name).All() {
		if !v.exports(b) {
			continue
		}
		d.Bindings = append(d.Bindings, BindingDefinition{b.Source, b.VHost, b.Destination, b.Kind.String(), b.Key, b.Args.Map()})
	}
	for _, p := range v.Policies(vh.Name) {
		d.Policies = append(d.Policies, PolicyDefinition{p.VHost, p.Name, policyValue(p)})
	}
	for _, p := range v.OperatorPolicies(vh.Name) {
		d.Parameters = append(d.Parameters, ParameterDefinition{p.VHost, "operator_policy", p.Name, policyValue(p)})
	}
}

func policyValue(p *Policy) PolicyValue {
	return PolicyValue{p.Pattern, p.ApplyTo, p.Definition.Map(), p.Priority}
}

// exports reports whether both ends of a binding will be there after an import: predeclared exchanges are in any case.
func (v *View) exports(b *Binding) bool {
	there := func(exchange string) bool {
		x := v.Exchange(b.VHost, exchange)
		return isPredeclared(exchange) || !x.Internal
	}
	if b.Kind == KindExchange {
		return there(b.Source) && there(b.Destination)
	}
	return there(b.Source) && !v.Queue(b.VHost, b.Destination).Exclusive
}

func isPredeclared(exchange string) bool {
	return exchange == "" || strings.HasPrefix(exchange, reservedPrefix)
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
