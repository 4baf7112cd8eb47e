package session

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/clock"
	"holdfast/internal/config"
	"holdfast/internal/wire"
)

// Options say what a Server is built from.
type Options struct {
	Broker   *broker.Broker
	Settings *config.Settings
	Clock    clock.Clock
	Logger   *slog.Logger
	// Version and Cluster are told to clients in the server properties.
	Version, Cluster string
	// LoginDelay is how long a client that failed to log in waits for the end of
	// its connection, unless it asked to be told (1 s).
	LoginDelay time.Duration
	// SilentDelay is how long a client that does not keep to the order of the
	// handshake is left without an answer before it is cut off (3 s).
	SilentDelay time.Duration
	// MaxConnections is how many clients are served at a time; others are turned
	// away (no limit).
	MaxConnections int
	// CloseTimeout bounds the wait for a client's close-ok, and for it to close
	// the socket after ours (10 s).
	CloseTimeout time.Duration
}

// Server serves the clients of any number of listeners.
type Server struct {
	broker     *broker.Broker
	settings   *config.Settings
	clock      clock.Clock
	log        *slog.Logger
	properties wire.Table
	maxMessage uint64
	frameMax   uint32
	options    Options
	readers    sync.Pool // of *broker.Reader
	turns      turns

	mu      sync.Mutex
	conns   map[*conn]struct{}
	crowded bool // clients were turned away, and that was logged
	closed  bool
	running sync.WaitGroup // one for each of conns

	counters counters
}

// counters count since the start.
type counters struct {
	channelsOpened, channelsClosed atomic.Uint64
	received, sent                 atomic.Uint64 // bytes, of connections that have ended
	confirmed, nacked              atomic.Uint64 // publishes, of channels that have ended
}

// Counters are the numbers of a server since its start.
type Counters struct {
	Connections, Channels          uint64 // open now, handshakes included
	ChannelsOpened, ChannelsClosed uint64
	ReceivedBytes, SentBytes       uint64
	Unacked, Unconfirmed           uint64 // on channels, now
	Confirmed, Nacked              uint64 // publishes
	Blocked                        uint64 // connections held back, now
}

// noFrameMax bounds frames where the settings set no limit.
const noFrameMax = 128 << 20

// NewServer returns a server without listeners.
func NewServer(o Options) *Server {
	if o.LoginDelay == 0 {
		o.LoginDelay = time.Second
	}
	if o.SilentDelay == 0 {
		o.SilentDelay = 3 * time.Second
	}
	if o.CloseTimeout == 0 {
		o.CloseTimeout = 10 * time.Second
	}
	s := &Server{
		broker: o.Broker, settings: o.Settings, clock: o.Clock, log: o.Logger, options: o,
		properties: serverProperties(o.Version, o.Cluster),
		maxMessage: uint64(o.Settings.MaxMessageSize),
		frameMax:   o.Settings.FrameMax,
		conns:      make(map[*conn]struct{}),
		turns:      newTurns(),
	}
	s.readers.New = func() any { return s.broker.NewReader() }
	if s.maxMessage == 0 {
		s.maxMessage = maxBody
	}
	if s.frameMax == 0 {
		s.frameMax = noFrameMax
	}
	return s
}

// Serve accepts connections until the listener is closed, which is no error.
func (s *Server) Serve(l net.Listener) error {
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			// Out of file descriptors, mostly: it passes when clients leave.
			s.log.Error("accept failed", "address", l.Addr().String(), "error", err)
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.sleep(pause)
			continue
		}
		pause = 0
		go s.ServeConn(nc)
	}
}

func (s *Server) sleep(d time.Duration) { s.sleepUntil(d, nil) }

// sleepUntil waits for d, or until stop is closed.
func (s *Server) sleepUntil(d time.Duration, stop <-chan struct{}) {
	over, done := clock.After(s.clock, d)
	defer done()
	select {
	case <-over:
	case <-stop:
	}
}

// admit tells whether there is room for one more client. s.mu is held.
func (s *Server) admit() bool {
	most := s.options.MaxConnections
	switch {
	case most == 0:
	case len(s.conns) >= most:
		if !s.crowded {
			s.log.Error("clients are turned away: there are too many", "connections", len(s.conns))
		}
		s.crowded = true
		return false
	case s.crowded && len(s.conns) < most-most/10:
		s.crowded = false
		s.log.Info("clients are let in again", "connections", len(s.conns))
	}
	return true
}

// ServeConn serves one client and returns when its connection has ended.
func (s *Server) ServeConn(nc net.Conn) {
	_, secure := nc.(*tls.Conn)
	c := newConn(s, nc, secure)
	s.mu.Lock()
	if s.closed || !s.admit() {
		s.mu.Unlock()
		nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()

	c.run()

	s.counters.received.Add(c.receivedBytes.Load())
	s.counters.sent.Add(c.sentBytes.Load())
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// Close turns away clients that come later, and cuts off those that have not
// opened a virtual host; the broker closes the others. It returns when all have
// gone. After limit, those that are left are cut off in the middle of their
// goodbye, and get cutOffWait to give back what they hold.
func (s *Server) Close(limit time.Duration) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cutOff(func(c *conn) bool { return !c.opened.Load() && !c.stopping() })
	gone := make(chan struct{})
	go func() {
		s.running.Wait()
		close(gone)
	}()
	s.sleepUntil(limit, gone)
	s.cutOff(func(*conn) bool { return true })
	s.sleepUntil(cutOffWait, gone)
}

// cutOffWait bounds how long Close waits for connections that it has cut off: a
// disk that hangs may keep one that owes it something.
const cutOffWait = 2 * time.Second

func (s *Server) cutOff(which func(*conn) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if which(c) {
			c.socket.Close()
		}
	}
}

// Counters adds up the numbers of all connections.
func (s *Server) Counters() Counters {
	s.mu.Lock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	n := Counters{
		Connections:    uint64(len(conns)),
		ChannelsOpened: s.counters.channelsOpened.Load(), ChannelsClosed: s.counters.channelsClosed.Load(),
		ReceivedBytes: s.counters.received.Load(), SentBytes: s.counters.sent.Load(),
		Confirmed: s.counters.confirmed.Load(), Nacked: s.counters.nacked.Load(),
	}
	for _, c := range conns {
		c.count(&n)
	}
	return n
}

// compatibleVersion is the version of RabbitMQ whose habits clients may count
// on. Clients decide by product and version how prefetch works and which
// extensions there are (docs/decisions, 6); platform says who is speaking.
const compatibleVersion = "3.13.7"

// serverProperties are what connection.start tells: RabbitMQ's names, and the
// capabilities that its clients look for.
func serverProperties(version, cluster string) wire.Table {
	if version == "" {
		version = "0.0.0"
	}
	if cluster == "" {
		cluster = "holdfast"
	}
	return wire.NewTable(map[string]any{
		"product": "RabbitMQ", "version": compatibleVersion, "cluster_name": cluster,
		"platform": "Holdfast " + version, "copyright": "The Holdfast authors", "information": "Licensed under Apache-2.0",
		"capabilities": map[string]any{
			"publisher_confirms": true, "exchange_exchange_bindings": true, "basic.nack": true,
			"consumer_cancel_notify": true, "connection.blocked": true, "consumer_priorities": true,
			"authentication_failure_close": true, "per_consumer_qos": true, "direct_reply_to": true,
		},
	})
}
