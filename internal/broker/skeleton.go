package broker

import (
	"net"

	"holdfast/internal/amqperr"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// Broker is the whole broker as its clients know it. Its methods may be called
// from any goroutine.
type Broker struct{}

// Mechanisms are the names of the SASL mechanisms offered, in order of preference.
func (b *Broker) Mechanisms() []string

// Login says who a client is. The error's code follows RabbitMQ: 503 for an
// unknown mechanism, 502 for a malformed response, 403 for a refusal.
func (b *Broker) Login(mechanism string, response []byte, peer net.Addr) (*Identity, *amqperr.Error)

// Register opens vhost for a connection: it checks that the virtual host is
// there and that the user may use it (530 otherwise), and makes the connection
// known. The session calls Conn.Close exactly once when the connection ends.
func (b *Broker) Register(id *Identity, vhost string, name string, control Control) (*Conn, *amqperr.Error)

// Conn is one client's connection to one virtual host. Its methods may be
// called from any goroutine; those that return an *amqperr.Error may wait, for
// the bounded time of Options.Settings.DeclareTimeout, and belong on a
// goroutine that may wait. Publishes of the same channel that come before such
// a call must have been flushed before it.
type Conn struct{}

// ID numbers the connection in this broker's life; it is never reused.
func (c *Conn) ID() uint64

// Credit bounds what the connection may have in flight towards queues. The
// connection's reader waits on it before it reads on.
func (c *Conn) Credit() *Credit

// Close ends the connection: its exclusive queues are deleted in one command.
// Its subscriptions must have been detached before (CloseChannel). It waits
// for nothing.
func (c *Conn) Close()

// CloseChannel detaches what the channel still has: getters, consumers and the
// direct reply-to consumer. Unacked messages go back to their queues. done, if
// not nil, runs when they have, on any goroutine.
func (c *Conn) CloseChannel(channel uint16, done func())

// DeclareExchange declares an exchange or checks that it is there.
func (c *Conn) DeclareExchange(r DeclareExchange) *amqperr.Error

// DeleteExchange deletes an exchange; a missing one is no error.
func (c *Conn) DeleteExchange(r DeleteExchange) *amqperr.Error

// Bind binds a queue or an exchange to an exchange.
func (c *Conn) Bind(r Bind) *amqperr.Error

// Unbind removes a binding; a missing one is no error.
func (c *Conn) Unbind(r Bind) *amqperr.Error

// DeclareQueue declares a queue or checks that it is there.
func (c *Conn) DeclareQueue(r DeclareQueue) (DeclaredQueue, *amqperr.Error)

// DeleteQueue deletes a queue and says how many ready messages went with it; a
// missing one is no error.
func (c *Conn) DeleteQueue(r DeleteQueue) (messages uint64, err *amqperr.Error)

// PurgeQueue removes the ready messages of a queue and says how many.
func (c *Conn) PurgeQueue(name string) (messages uint64, err *amqperr.Error)

// Consume attaches a consumer to a queue.
func (c *Conn) Consume(r Consume) (*Subscription, *amqperr.Error)

// Get fetches one message; ok is false if the queue has none ready.
func (c *Conn) Get(r Get) (ok bool, err *amqperr.Error)

// ConsumeReplies opens the channel's direct reply-to consumer and returns the
// name that publishes of this channel put in place of the pseudo queue
// ReplyTo in their reply_to property.
func (c *Conn) ConsumeReplies(channel uint16, tag string, consumer Consumer) (replyTo string, err *amqperr.Error)

// CancelReplies closes what ConsumeReplies opened.
func (c *Conn) CancelReplies(channel uint16)

// Publisher returns a new publishing side for one channel. It belongs to the
// goroutine that uses it.
func (c *Conn) Publisher() *Publisher

// ReplyTo is the pseudo queue of direct reply-to. A session sends a declare,
// consume or publish that names it its own way: consume to ConsumeReplies; a
// publish whose reply_to it is gets the channel's own name instead, or
// amqperr.ReplyConsumerMissing.
const ReplyTo = "amq.rabbitmq.reply-to"

// Subscription is a consumer attached to a queue, or a channel's getter. Its
// methods may be called from any goroutine and never block; what one
// goroutine does through it happens in that order.
type Subscription struct{}

// Queue is the name of the queue.
func (s *Subscription) Queue() string

// Settle ends the checkouts of the deliveries in ranges. Ids unknown or settled already are ignored.
func (s *Subscription) Settle(ranges []Range, how Settlement)

// Grant lets n more deliveries come. With drain set, what is left of the
// credit after the ready messages were delivered comes back as Consumer.Drained.
func (s *Subscription) Grant(n uint32, drain bool)

// Cancel stops deliveries; unacked messages stay with the channel. done, if not
// nil, runs on a shard worker after the last delivery.
func (s *Subscription) Cancel(done func())

// Detach ends the subscription: unacked messages go back to the queue. done, if
// not nil, runs on a shard worker after that.
func (s *Subscription) Detach(done func())

// Publisher is the publishing side of one channel. It caches the permissions
// and routes of what the channel publishes to. It belongs to one goroutine.
type Publisher struct{}

// Route is where one publish goes. It is valid until the next call of
// Publisher.Route.
type Route struct{}

// Queues is the number of queues that will get the message: the number of
// times its Ticket hears an outcome. 0: unroutable.
func (r *Route) Queues() int

// Properties are what to store with the message: the publish's own, or a copy
// without the BCC header.
func (r *Route) Properties() wire.Properties

// Route checks a publish and finds its queues: write permission, exchange (404,
// 403 for an internal one), user_id (406), CC and BCC headers. exchange, key and
// properties are borrowed for the call.
func (p *Publisher) Route(exchange, key []byte, properties wire.Properties) (Route, *amqperr.Error)

// Publish lines m up for the queues of r. Nothing is handed on before Flush;
// p.Pending says how much has been lined up.
func (p *Publisher) Publish(r Route, m Publish)

// Pending is the number of messages, counted once per queue, waiting for Flush.
func (p *Publisher) Pending() int

// Flush hands on what was lined up, one put per queue. It never waits.
func (p *Publisher) Flush()

// Unlimited is the credit and prefetch of a consumer without a limit.
const Unlimited = queuehost.Unlimited

// AddUser adds a user.
func (b *Broker) AddUser(name, password string) error

// ChangePassword gives a user a new password.
func (b *Broker) ChangePassword(name, password string) error

// DeleteUser removes a user with its permissions and closes its connections.
func (b *Broker) DeleteUser(name string) error

// SetUserTags replaces the tags of a user.
func (b *Broker) SetUserTags(name string, tags []string) error

// SetPermissions says what user may do in vhost.
func (b *Broker) SetPermissions(vhost, user, configure, write, read string) error

// ClearPermissions takes away what user may do in vhost.
func (b *Broker) ClearPermissions(vhost, user string) error

// AddVHost adds a virtual host.
func (b *Broker) AddVHost(name, description string, tags []string) error

// DeleteVHost removes a virtual host with all that is in it and closes its connections.
func (b *Broker) DeleteVHost(name string) error

// AuthenticateUser reports whether the name and password fit.
func (b *Broker) AuthenticateUser(name, password string) error

// AdminDeclareQueue declares a queue.
func (b *Broker) AdminDeclareQueue(q AdminQueue) error

// AdminDeleteQueue deletes a queue and says how many ready messages went with it.
func (b *Broker) AdminDeleteQueue(vhost, name string, ifUnused, ifEmpty bool) (uint64, error)

// AdminPurgeQueue removes the ready messages of a queue and says how many.
func (b *Broker) AdminPurgeQueue(vhost, name string) (uint64, error)

// AdminPublish publishes a message, waits until it is safe where its route
// says, and says into how many queues it went.
func (b *Broker) AdminPublish(p AdminPublish) (queues int, err error)

// AdminGet fetches up to n messages; with requeue they go back afterwards, else they are gone.
func (b *Broker) AdminGet(vhost, queue string, n int, requeue bool) ([]AdminMessage, error)

// CloseConnection closes one connection by its name; reason is told to the client.
func (b *Broker) CloseConnection(name, reason string) error

// CloseAllConnections closes all connections, or those of one vhost or user if given, and says how many.
func (b *Broker) CloseAllConnections(vhost, user, reason string) int

// DiscardGroup gives up on a quarantined or orphaned group: its data is freed.
func (b *Broker) DiscardGroup(group uint64) error

// ListUsers lists the users.
func (b *Broker) ListUsers() []User

// ListPermissions lists permissions, of one vhost or user if given.
func (b *Broker) ListPermissions(vhost, user string) []Permission

// ListVHosts lists the virtual hosts.
func (b *Broker) ListVHosts() []VHost

// ListQueues lists the queues of a vhost in order of name, at most limit of them (0 = all), after the name given.
func (b *Broker) ListQueues(vhost, after string, limit int) ([]QueueInfo, error)

// QueueInfo describes one queue.
func (b *Broker) QueueInfo(vhost, name string) (QueueInfo, error)

// ListExchanges lists the exchanges of a vhost.
func (b *Broker) ListExchanges(vhost string) ([]ExchangeInfo, error)

// ListBindings lists the bindings of a vhost, those of the default exchange included.
func (b *Broker) ListBindings(vhost string) ([]BindingInfo, error)

// ListConnections lists the open connections.
func (b *Broker) ListConnections() []ConnectionInfo

// ListChannels lists the open channels.
func (b *Broker) ListChannels() []ChannelInfo

// ListConsumers lists the consumers of a vhost.
func (b *Broker) ListConsumers(vhost string) ([]ConsumerInfo, error)

// ListOrphans lists the groups of the log that the catalog does not know.
func (b *Broker) ListOrphans() []OrphanInfo

// Explain says, in sentences, why a queue is not delivering, or that it is.
func (b *Broker) Explain(vhost, queue string) ([]string, error)

// Alarms lists the alarms that are on.
func (b *Broker) Alarms() []Alarm

// Health reports nil, or what is wrong with the node in one sentence.
func (b *Broker) Health() error
