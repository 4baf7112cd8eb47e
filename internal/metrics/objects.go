package metrics

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
)

// Queue is one queue on the page per object.
type Queue struct {
	VHost, Name               string
	Ready, Unacked, Consumers uint64
	Delayed                   uint64
	BodiesInMemory            uint64 // bytes
	BodiesSpilled             uint64 // bytes on disk that are not in the log
	Published, Delivered      uint64
	Redelivered, Acked        uint64
	GetsEmpty, WaitingForDisk uint64
	Dead                      uint64 // letters that have not arrived
	Quarantined               bool
}

// Nacks are the publishes of clients of this node that one queue was not seen to take.
type Nacks struct {
	VHost, Name      string
	Refused, Unknown uint64
}

// Dead are the dead letters of one queue that this node has served.
type Dead struct {
	VHost, Name                             string
	Rejected, Expired, MaxLen, OverDelivery uint64
	Dropped                                 uint64 // of these: not arrived anywhere
}

// Connection is one connection on the page per object.
type Connection struct {
	Name                     string
	Channels                 uint64
	ReceivedBytes, SentBytes uint64
}

// Channel is one channel on the page per object.
type Channel struct {
	Name                            string
	Consumers, Unacked, Unconfirmed uint64
	Prefetch                        uint64
}

// Objects walks what the page per object has lines for. Each function is called once a family and calls yield for each
// object, so that the page is written without being held in memory; it stops when yield returns false.
type Objects struct {
	Queues      func(yield func(*Queue) bool)
	Nacked      func(yield func(*Nacks) bool) // only queues with any, wherever they are
	Dead        func(yield func(*Dead) bool)  // the same
	Connections func(yield func(*Connection) bool)
	Channels    func(yield func(*Channel) bool)
}

type objectFamily[T any] struct {
	name, kind, help string
	value            func(*T) float64
}

var queueFamilies = []objectFamily[Queue]{
	{"rabbitmq_queue_messages_ready", "gauge", "Messages ready to be delivered to consumers", func(q *Queue) float64 { return float64(q.Ready) }},
	{"rabbitmq_queue_messages_unacked", "gauge", "Messages delivered to consumers but not yet acknowledged", func(q *Queue) float64 { return float64(q.Unacked) }},
	{"holdfast_queue_messages_delayed", "gauge", "Messages that wait until their time has come", func(q *Queue) float64 { return float64(q.Delayed) }},
	{"rabbitmq_queue_messages", "gauge", "Sum of ready and unacknowledged messages", func(q *Queue) float64 { return float64(q.Ready + q.Unacked) }},
	{"rabbitmq_queue_messages_ram_bytes", "gauge", "Size in bytes of message bodies that are in memory", func(q *Queue) float64 { return float64(q.BodiesInMemory) }},
	{"rabbitmq_queue_messages_paged_out_bytes", "gauge", "Size in bytes of message bodies that are on disk and not in the log, about", func(q *Queue) float64 { return float64(q.BodiesSpilled) }},
	{"rabbitmq_queue_consumers", "gauge", "Consumers on a queue", func(q *Queue) float64 { return float64(q.Consumers) }},
	{"rabbitmq_queue_messages_published_total", "counter", "Messages put into a queue", func(q *Queue) float64 { return float64(q.Published) }},
	{"rabbitmq_queue_messages_redelivered_total", "counter", "Messages delivered from a queue that had been delivered before", func(q *Queue) float64 { return float64(q.Redelivered) }},
	{"rabbitmq_queue_messages_acked_total", "counter", "Messages of a queue acknowledged by consumers", func(q *Queue) float64 { return float64(q.Acked) }},
	{"holdfast_queue_messages_delivered_total", "counter", "Messages delivered from a queue to consumers and getters", func(q *Queue) float64 { return float64(q.Delivered) }},
	{"rabbitmq_queue_get_empty_total", "counter", "Gets that found no message", func(q *Queue) float64 { return float64(q.GetsEmpty) }},
	{"holdfast_queue_waiting_publishes", "gauge", "Persistent publishes to a queue that wait for the disk", func(q *Queue) float64 { return float64(q.WaitingForDisk) }},
	{"holdfast_queue_dead_letters", "gauge", "Dead letters that a queue holds until they have arrived", func(q *Queue) float64 { return float64(q.Dead) }},
	{"holdfast_queue_quarantined", "gauge", "1 if the queue's data in the log is damaged and it serves nobody", func(q *Queue) float64 { return truth(q.Quarantined) }},
}

var nackFamilies = []objectFamily[Nacks]{
	{"holdfast_queue_publishes_refused_total", "counter", "Publishes of clients of this node that a queue did not take", func(n *Nacks) float64 { return float64(n.Refused) }},
	{"holdfast_queue_publishes_unknown_total", "counter", "Publishes of clients of this node that were nacked because nobody knew in time whether a queue has them", func(n *Nacks) float64 { return float64(n.Unknown) }},
}

var deadFamilies = []objectFamily[Dead]{
	{"holdfast_queue_dead_lettered_rejected_total", "counter", "Messages that died in a queue since a consumer rejected them", func(d *Dead) float64 { return float64(d.Rejected) }},
	{"holdfast_queue_dead_lettered_expired_total", "counter", "Messages that died in a queue since their time was over", func(d *Dead) float64 { return float64(d.Expired) }},
	{"holdfast_queue_dead_lettered_maxlen_total", "counter", "Messages that died in a queue since it had no room", func(d *Dead) float64 { return float64(d.MaxLen) }},
	{"holdfast_queue_dead_lettered_delivery_limit_total", "counter", "Messages that died in a queue since they came back too often", func(d *Dead) float64 { return float64(d.OverDelivery) }},
	{"holdfast_queue_dead_letters_dropped_total", "counter", "Dead letters of a queue that have arrived nowhere", func(d *Dead) float64 { return float64(d.Dropped) }},
}

var connectionFamilies = []objectFamily[Connection]{
	{"rabbitmq_connection_incoming_bytes_total", "counter", "Bytes received on a connection", func(c *Connection) float64 { return float64(c.ReceivedBytes) }},
	{"rabbitmq_connection_outgoing_bytes_total", "counter", "Bytes sent on a connection", func(c *Connection) float64 { return float64(c.SentBytes) }},
	{"rabbitmq_connection_channels", "gauge", "Channels on a connection", func(c *Connection) float64 { return float64(c.Channels) }},
}

var channelFamilies = []objectFamily[Channel]{
	{"rabbitmq_channel_consumers", "gauge", "Consumers on a channel", func(c *Channel) float64 { return float64(c.Consumers) }},
	{"rabbitmq_channel_messages_unacked", "gauge", "Delivered but not yet acknowledged messages", func(c *Channel) float64 { return float64(c.Unacked) }},
	{"rabbitmq_channel_messages_unconfirmed", "gauge", "Published but not yet confirmed messages", func(c *Channel) float64 { return float64(c.Unconfirmed) }},
	{"rabbitmq_consumer_prefetch", "gauge", "Limit of unacknowledged messages for each consumer", func(c *Channel) float64 { return float64(c.Prefetch) }},
}

// ObjectsHandler serves the page per object. It is written as it is walked: its size is not bounded, its memory is.
func ObjectsHandler(o Objects) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		WriteObjects(w, o) // an error means that the scraper has gone; there is nobody to tell
	})
}

// WriteObjects writes the page per object.
func WriteObjects(w io.Writer, o Objects) error {
	p := page{out: bufio.NewWriterSize(w, 64<<10)}
	writeFamilies(&p, queueFamilies, o.Queues, func(b []byte, q *Queue) []byte {
		return label(append(label(append(b, "vhost="...), q.VHost), ",queue="...), q.Name)
	})
	writeFamilies(&p, nackFamilies, o.Nacked, func(b []byte, n *Nacks) []byte {
		return label(append(label(append(b, "vhost="...), n.VHost), ",queue="...), n.Name)
	})
	writeFamilies(&p, deadFamilies, o.Dead, func(b []byte, d *Dead) []byte {
		return label(append(label(append(b, "vhost="...), d.VHost), ",queue="...), d.Name)
	})
	writeFamilies(&p, connectionFamilies, o.Connections, func(b []byte, c *Connection) []byte {
		return label(append(b, "connection="...), c.Name)
	})
	writeFamilies(&p, channelFamilies, o.Channels, func(b []byte, c *Channel) []byte {
		return label(append(b, "channel="...), c.Name)
	})
	if p.err != nil {
		return p.err
	}
	return p.out.Flush()
}

// page is the text being written, up to the first error.
type page struct {
	out  *bufio.Writer
	line []byte
	err  error
}

func (p *page) write(b []byte) bool {
	if p.err == nil {
		_, p.err = p.out.Write(b)
	}
	return p.err == nil
}

func writeFamilies[T any](p *page, families []objectFamily[T], walk func(func(*T) bool), labels func([]byte, *T) []byte) {
	if walk == nil {
		return
	}
	for i := range families {
		f := &families[i]
		if !p.write([]byte("# HELP " + f.name + " " + f.help + "\n# TYPE " + f.name + " " + f.kind + "\n")) {
			return
		}
		walk(func(object *T) bool {
			b := append(append(p.line[:0], f.name...), '{')
			b = append(labels(b, object), "} "...)
			b = append(strconv.AppendFloat(b, f.value(object), 'g', -1, 64), '\n')
			p.line = b
			return p.write(b)
		})
	}
}

// label appends a quoted label value: backslash, quote and line feed are escaped, and bytes that are not UTF-8 replaced.
func label(b []byte, value string) []byte {
	b = append(b, '"')
	for _, r := range value { // a byte that is not UTF-8 comes as the replacement rune
		switch r {
		case '\\', '"':
			b = append(b, '\\', byte(r))
		case '\n':
			b = append(b, `\n`...)
		default:
			b = append(b, string(r)...)
		}
	}
	return append(b, '"')
}
