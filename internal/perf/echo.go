package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Echo is a fake broker: it answers requests, confirms at once, and passes what
// is published on to the consumers of the queues. It keeps nothing safe and
// counts no acks; what it costs is what the machine and the protocol cost. It
// knows the default exchange, direct and fanout ones.
type Echo struct {
	listener net.Listener
	planted  planted
	seen     atomic.Uint64 // messages published so far, for the planted fault

	mu        sync.Mutex
	queues    map[string]*echoQueue
	exchanges map[string]*echoExchange
	conns     map[*echoConn]bool
	names     int // for queues without a name
	serving   sync.WaitGroup
}

type echoExchange struct {
	fanout bool
	bound  map[string][]*echoQueue // by key; a fanout exchange has one key
}

// echoQueue hands messages round its consumers, and holds them while there are
// none.
type echoQueue struct {
	name string

	mu        sync.Mutex
	consumers []*echoConsumer
	turn      int
	held      []echoMessage
	late      *echoMessage // planted: goes out after the next of the same connection
	lateFrom  *echoConn
}

type echoConsumer struct {
	conn    *echoConn
	channel uint16
	tag     []byte
}

// echoMessage borrows from a read buffer unless it is held.
type echoMessage struct {
	exchange, key, properties, body []byte
}

func (m echoMessage) clone() echoMessage {
	return echoMessage{slices.Clone(m.exchange), slices.Clone(m.key), slices.Clone(m.properties), slices.Clone(m.body)}
}

// planted is a fault that the audit must notice: the n-th message is lost,
// comes twice, or comes after the one behind it.
type planted struct {
	kind string
	at   uint64
}

func parseFault(text string) (planted, error) {
	if text == "" {
		return planted{}, nil
	}
	kind, at, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(at, 10, 64)
	if err != nil || n == 0 || !slices.Contains([]string{"lose", "duplicate", "swap"}, kind) {
		return planted{}, fmt.Errorf("%q is not lose:N, duplicate:N or swap:N", text)
	}
	return planted{kind, n}, nil
}

// ListenEcho starts an echo server. fault is "" or plants one: lose:N,
// duplicate:N or swap:N.
func ListenEcho(address, fault string) (*Echo, error) {
	f, err := parseFault(fault)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Echo{listener: l, planted: f, queues: map[string]*echoQueue{}, exchanges: map[string]*echoExchange{}, conns: map[*echoConn]bool{}}
	s.serving.Go(s.accept)
	return s, nil
}

// Addr is where it listens.
func (s *Echo) Addr() string { return s.listener.Addr().String() }

// Close ends all connections and waits until their goroutines have ended.
func (s *Echo) Close() {
	s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.conn.nc.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
}

func (s *Echo) accept() {
	for {
		nc, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		c := &echoConn{server: s, conn: &conn{nc: nc, buf: make([]byte, 4<<10), frameMax: echoFrameMax}, channels: map[uint16]*echoChannel{}}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.serving.Go(c.serve)
	}
}

// queue finds a queue, or makes it.
func (s *Echo) queue(name string) *echoQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name == "" {
		s.names++
		name = "echo-" + strconv.Itoa(s.names)
	}
	q := s.queues[name]
	if q == nil {
		q = &echoQueue{name: name}
		s.queues[name] = q
	}
	return q
}

func (s *Echo) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	delete(s.queues, name)
	for _, x := range s.exchanges {
		for key, to := range x.bound {
			x.bound[key] = slices.DeleteFunc(slices.Clone(to), func(o *echoQueue) bool { return o == q })
		}
	}
}

func (s *Echo) exchange(name, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exchanges[name] == nil {
		s.exchanges[name] = &echoExchange{kind == "fanout", map[string][]*echoQueue{}}
	}
}

func (s *Echo) bind(queue, exchange, key string) {
	q := s.queue(queue)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.exchanges[exchange]
	if x == nil {
		return
	}
	if x.fanout {
		key = ""
	}
	if !slices.Contains(x.bound[key], q) {
		x.bound[key] = append(slices.Clone(x.bound[key]), q)
	}
}

// route is the queues of a message. The slice is not changed later.
func (s *Echo) route(exchange, key []byte) []*echoQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(exchange) == 0 {
		if q := s.queues[string(key)]; q != nil {
			return []*echoQueue{q}
		}
		return nil
	}
	x := s.exchanges[string(exchange)]
	switch {
	case x == nil:
		return nil
	case x.fanout:
		return x.bound[""]
	}
	return x.bound[string(key)]
}

// forget takes a connection's consumers from their queues.
func (s *Echo) forget(c *echoConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	for _, q := range s.queues {
		q.mu.Lock()
		q.consumers = slices.DeleteFunc(q.consumers, func(k *echoConsumer) bool { return k.conn == c })
		q.mu.Unlock()
	}
}

// put passes a message on, with the fault that is planted for it.
func (q *echoQueue) put(m echoMessage, from *echoConn, p planted, nth uint64, touched []*echoConn) []*echoConn {
	q.mu.Lock()
	defer q.mu.Unlock()
	if nth == p.at {
		switch p.kind {
		case "lose":
			return touched
		case "duplicate":
			touched = q.give(m, touched)
		case "swap":
			later := m.clone()
			q.late, q.lateFrom = &later, from
			return touched
		}
	}
	touched = q.give(m, touched)
	if q.late != nil && q.lateFrom == from {
		touched = q.give(*q.late, touched)
		q.late = nil
	}
	return touched
}

func (q *echoQueue) give(m echoMessage, touched []*echoConn) []*echoConn {
	if len(q.consumers) == 0 {
		q.held = append(q.held, m.clone())
		return touched
	}
	k := q.consumers[q.turn%len(q.consumers)]
	q.turn++
	k.conn.deliver(k, m)
	if !slices.Contains(touched, k.conn) {
		touched = append(touched, k.conn)
	}
	return touched
}

// consume adds a consumer, which gets what was held.
func (q *echoQueue) consume(k *echoConsumer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.consumers = append(q.consumers, k)
	for _, m := range q.held {
		k.conn.deliver(k, m)
	}
	q.held = nil
}

func (q *echoQueue) counts() (messages, consumers int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.held), len(q.consumers)
}

func (o *options) echoFlags(s *flagSet) {
	s.text("listen", "HOST:PORT", "address to serve at (127.0.0.1:5672)", &o.listen)
	s.text("fault", "FAULT", "plant a fault that an audit must notice: lose:N, duplicate:N or swap:N", &o.fault)
}

func (o *options) diskFlags(s *flagSet) {
	s.text("disk", "FOLDER", "where (the current folder)", &o.disk)
	s.seconds("z time", "SECONDS", "how long (5)", &o.time)
}

// runEcho serves until it is interrupted.
func (e *env) runEcho(ctx context.Context) (*Report, error) {
	s, err := ListenEcho(e.o.listen, e.o.fault)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(e.out, "The echo server listens at %s.\n", s.Addr())
	<-ctx.Done()
	s.Close()
	return nil, nil
}
