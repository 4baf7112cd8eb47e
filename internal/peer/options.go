package peer

import (
	"crypto/tls"
	"log/slog"
	"net"
	"strconv"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/invariant"
)

// Times of the heartbeats where Options do not say others. The rooms above go by them.
const (
	BeatEvery   = 200 * time.Millisecond
	BeatsMissed = 4
	// SuspectAfter is how long a node has not been heard that becomes suspect.
	SuspectAfter = BeatsMissed * BeatEvery
)

// Options of a node's links. The zero value of a field with a number in
// brackets means that number.
type Options struct {
	Node        NodeID
	Incarnation uint64
	Cluster     ClusterID
	Name        string // for people
	Addr        string // where the others reach this node
	Info        []byte // given to Up on the other side; at most 4 KiB
	Handler     Handler
	// Levels is what the node says of its formats; nil: nothing. It is called for each greeting, from any goroutine, and must not
	// block.
	Levels func() Levels
	// Unfit, if not nil, is told of a node of the cluster, or of one that this node wants to join, whose level this one does not
	// know. It is called from any goroutine and must not block.
	Unfit func(its Hello)
	// Line is what the node tells as Hello.Line; nil: nothing. It is called for each greeting, from any goroutine, and must not block,
	// nor call the links.
	Line func() []byte
	// Meet, if not nil, has the last word about each connection of a link. It may take over what the other node tells, so that Line
	// returns the same as its Line from then on. An error is ErrLine or ErrBusy, or wraps one of them. It is called from any
	// goroutine, and may wait for the disk.
	Meet func(its Hello) error
	// Apart, if not nil, is told of a peer that one of the two has refused with ErrLine. It is called from any goroutine and must
	// not block.
	Apart func(its Hello)

	Listener net.Listener // of the TCP links, which close it
	// Secret, if not empty, is what both sides have to know. It is never sent, but
	// whoever listens to a greeting can try guesses at it: let it be long and random.
	Secret []byte
	// TLS, if not nil, gives the certificate, its key and the authorities. Both
	// sides show one and check the other's. It is called again for new
	// connections, so that files that changed are seen; at most once in 5 s.
	TLS func() (*tls.Config, error)

	Clock  clock.Clock
	Logger *slog.Logger
	// Called is what people call a node that has not said its name yet, for the log. Nil: its id. It is called from any
	// goroutine and must not block.
	Called func(NodeID) string

	// Beat appends what the next heartbeat carries, at most 4 KiB. It is called by
	// one goroutine at a time and must not block.
	Beat        func(dst []byte) []byte
	BeatEvery   time.Duration // (BeatEvery)
	BeatsMissed int           // before a node is suspect (BeatsMissed)

	LaneBytes  [Lanes]int    // what may wait to be sent (4 MiB, 16 MiB, 4 MiB)
	MaxMessage int           // bytes (4 MiB); at most 1 GiB
	Stall      time.Duration // a write without progress for so long breaks the link (1.5 s)
	Silence    time.Duration // without a heartbeat for so long the link is given up, also if nothing is wrong with it (10 s)
	Greet      time.Duration // for dialling, and once more for the greeting (2 s)
	BackoffMin time.Duration // before the link is tried again (20 ms)
	BackoffMax time.Duration // the longest of these waits (1 s)

	least, most uint16 // versions; for tests
}

// The versions of the protocol that this code speaks.
const (
	leastVersion = 1
	mostVersion  = 1
)

const (
	maxName = 255
	maxAddr = 255
	maxInfo = 4 << 10
	maxBeat = 4 << 10
	maxLine = 512
)

func (o *Options) setDefaults() {
	set := func(field *time.Duration, value time.Duration) {
		if *field == 0 {
			*field = value
		}
	}
	set(&o.BeatEvery, BeatEvery)
	set(&o.Stall, 1500*time.Millisecond)
	set(&o.Silence, 10*time.Second)
	set(&o.Greet, 2*time.Second)
	set(&o.BackoffMin, 20*time.Millisecond)
	set(&o.BackoffMax, time.Second)
	if o.BeatsMissed == 0 {
		o.BeatsMissed = BeatsMissed
	}
	for lane, bytes := range [Lanes]int{4 << 20, 16 << 20, 4 << 20} {
		if o.LaneBytes[lane] == 0 {
			o.LaneBytes[lane] = bytes
		}
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 4 << 20
	}
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Levels == nil {
		o.Levels = func() Levels { return Levels{} }
	}
	if o.Line == nil {
		o.Line = func() []byte { return nil }
	}
	if o.Called == nil {
		o.Called = func(n NodeID) string { return strconv.FormatUint(uint64(n), 10) }
	}
	if o.least == 0 {
		o.least, o.most = leastVersion, mostVersion
	}
	invariant.That(o.Node != 0, "peer: a node without an id")
	invariant.That(o.Handler != nil, "peer: links without a handler")
	invariant.That(len(o.Info) <= maxInfo, "peer: Options.Info is too long")
	invariant.That(o.MaxMessage <= 1<<30, "peer: Options.MaxMessage is too large")
	o.Name, o.Addr = cut(o.Name, maxName), cut(o.Addr, maxAddr)
}

func cut(s string, n int) string { return s[:min(len(s), n)] }

// beat is the payload of the next heartbeat, behind dst.
func (o *Options) beat(dst []byte) []byte {
	if o.Beat == nil {
		return dst
	}
	before := len(dst)
	dst = o.Beat(dst)
	if n := len(dst) - before; n < 0 || n > maxBeat {
		invariant.Failf("peer: a heartbeat of %d bytes", n)
	}
	return dst
}
