package broker

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"sync"
	"sync/atomic"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
)

// ReplyTo is the pseudo queue of direct reply-to. Consuming from it gives the
// channel a name of its own, Subscription.ReplyTo, under which replies reach
// it through the default exchange; a publish whose reply_to is the pseudo
// queue carries that name instead, or is refused with
// amqperr.ReplyConsumerMissing where the channel has no such consumer.
const ReplyTo = "amq.rabbitmq.reply-to"

// firstReplyQueue is the first id of the queues behind reply-to consumers. The
// catalog counts its ids up from 1 and never gets there.
const firstReplyQueue = 1 << 62

// replies are the direct reply-to consumers. Each is backed by a queue of its
// own that the catalog does not know: it is there for one channel only, keeps
// nothing on disk, and gets its deliveries by the same credit as any other.
type replies struct {
	last   atomic.Uint64
	mu     sync.RWMutex
	queues map[string]*replyQueue
}

// replyQueue is the queue behind one channel's direct reply-to consumer.
type replyQueue struct {
	name   string
	handle *queuehost.Handle
}

// consumeReplies opens a channel's direct reply-to consumer.
func (c *Conn) consumeReplies(r Consume) (*Subscription, *amqperr.Error) {
	if !r.NoAck {
		return nil, amqperr.ReplyConsumerAcks()
	}
	c.mu.Lock()
	if c.channel(r.Channel).reply != nil {
		c.mu.Unlock()
		return nil, amqperr.ReplyConsumerExists()
	}
	b := c.b
	id := firstReplyQueue + b.replies.last.Add(1)
	reply := &replyQueue{name: b.replyName()}
	c.channel(r.Channel).reply = reply
	c.mu.Unlock()

	h, err := b.queues.Create(queuehost.QueueDef{ID: seglog.GroupID(id), VHost: c.vhost, Name: reply.name, Exclusive: true})
	if err != nil {
		return nil, b.clientError(err, "consume", amqperr.Queue, c.vhost, ReplyTo)
	}
	reply.handle = h
	b.replies.mu.Lock()
	b.replies.queues[reply.name] = reply
	b.replies.mu.Unlock()
	s, e := c.attach(r, &catalog.Queue{ID: catalog.QueueID(id), VHost: c.vhost, Name: reply.name}, h, reply)
	if e != nil {
		b.dropReplies(reply)
	}
	return s, e
}

// dropReplies ends a direct reply-to consumer's queue; what is in it goes with it.
func (b *Broker) dropReplies(reply *replyQueue) {
	b.replies.mu.Lock()
	known := b.replies.queues[reply.name] == reply
	delete(b.replies.queues, reply.name)
	b.replies.mu.Unlock()
	if known {
		b.queues.Drop(reply.handle.ID(), amqperr.NoQueue("", reply.name), nil)
	}
}

// replyPrefix is what the name of every direct reply-to consumer begins with. What follows is the node of the consumer and
// 128 random bits, in base64.
const replyPrefix = ReplyTo + "."

func (b *Broker) replyName() string {
	bits := random()
	return replyPrefix + base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, b.node), bits[:]...))
}

// replyNode returns the node that can have given a name to a consumer, there or not; 0: no node can.
func replyNode(name string) (node uint64) {
	rest, is := strings.CutPrefix(name, replyPrefix)
	if !is || len(rest) != base64.RawURLEncoding.EncodedLen(8+16) {
		return 0
	}
	bytes, err := base64.RawURLEncoding.DecodeString(rest)
	if err != nil || len(bytes) != 8+16 {
		return 0
	}
	return binary.BigEndian.Uint64(bytes)
}

// mailboxLevel is the level of formats from which on nodes take replies for their consumers from others.
const mailboxLevel = 2

// mailbox returns what takes replies to a consumer of another node, nil if that is none of the cluster. Anybody can make up a name: it
// leads to nodes that the catalog knows, or nowhere.
func (b *Broker) mailbox(v *catalog.View, name string) *queuehost.Handle {
	node := replyNode(name)
	if node == 0 || node == b.node || v.Level() < mailboxLevel || v.Node(node) == nil {
		return nil
	}
	return b.queues.Mailbox(node)
}

// replyHandle returns the queue behind a direct reply-to name, or nil.
func (b *Broker) replyHandle(vhost, name string) *queuehost.Handle {
	b.replies.mu.RLock()
	defer b.replies.mu.RUnlock()
	return b.replies.queues[name].in(vhost)
}

// ReplyQueue returns the queue behind the name of a direct reply-to consumer of this node, nil if it is not there. It borrows, and may be
// called from anywhere.
func (b *Broker) ReplyQueue(vhost, name []byte) *queuehost.Handle {
	b.replies.mu.RLock()
	defer b.replies.mu.RUnlock()
	return b.replies.queues[string(name)].in(string(vhost))
}

// in returns the queue, if it is one of the virtual host.
func (r *replyQueue) in(vhost string) *queuehost.Handle {
	if r == nil || r.handle.Def().VHost != vhost {
		return nil
	}
	return r.handle
}

// hasReply reports whether a name is that of a direct reply-to consumer that is there, on this node or another one, which is asked.
func (b *Broker) hasReply(vhost, name string) bool {
	if b.replyHandle(vhost, name) != nil {
		return true
	}
	return b.replyAt != nil && b.mailbox(b.view(), name) != nil && b.replyAt(replyNode(name), vhost, name)
}

// declareReplies answers a declare of a direct reply-to name: the pseudo queue
// itself is always there, the name of a consumer as long as that is.
func (c *Conn) declareReplies(name string) (DeclaredQueue, *amqperr.Error) {
	if name != ReplyTo && !c.b.hasReply(c.vhost, name) {
		return DeclaredQueue{}, amqperr.NoQueue(c.vhost, name)
	}
	return DeclaredQueue{Name: name, Consumers: 1}, nil
}

// isReplyName reports whether a routing key of the default exchange may be a direct reply-to name.
func isReplyName(key []byte) bool {
	return strings.HasPrefix(string(key), replyPrefix)
}
