package peer

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"holdfast/internal/invariant"
)

const (
	keptBuffer = 64 << 10 // of a lane in calm
	writePiece = 256 << 10
	calmRounds = 16
)

// lane is what waits to be sent on one lane of one link. Senders append to
// pending; the writer takes it whole and leaves the buffer it has written.
type lane struct {
	budget int
	max    int // length of a message
	wake   chan struct{}
	counts *laneCounts // guarded by mu, as long as the lane is not closed

	mu      sync.Mutex
	pending []byte
	spare   []byte // empty
	writing int    // bytes taken and not yet written
	beat    []byte // frames that go before everything else, or empty
	echo    []byte // the same, to answer a ping
	refused bool   // a message found no room, and nobody was told since that there is some
	asleep  bool   // the writer waits for wake
	ending  bool   // the writer ends when nothing waits
	closed  bool   // the link is broken
	calm    int    // buffers in a row that were far too large, or steps without traffic
}

// laneCounts is what was sent on a lane of a peer, over all its links.
type laneCounts struct{ messages, bytes, refused uint64 }

func newLane(budget, max int, counts *laneCounts) *lane {
	return &lane{budget: budget, max: max, counts: counts, wake: make(chan struct{}, 1)}
}

// put is Links.Send for this lane.
func (l *lane) put(write func(dst []byte) []byte) bool {
	l.mu.Lock()
	if l.closed || l.ending || len(l.pending)+l.writing >= l.budget {
		if !l.closed && !l.ending {
			l.refused = true
			l.counts.refused++
		}
		l.mu.Unlock()
		return false
	}
	at := len(l.pending)
	out := write(append(l.pending, 0, 0, 0, 0))
	n := len(out) - at - frameHead
	if n < 0 || n > l.max {
		l.mu.Unlock()
		invariant.Failf("peer: a message of %d bytes, at most %d are allowed", n, l.max)
	}
	binary.LittleEndian.PutUint32(out[at:], uint32(n))
	l.pending = out
	l.counts.messages++
	l.counts.bytes += uint64(frameHead + n)
	l.unlockAndWake()
	return true
}

// putBeat sets the heartbeat that goes out next, with a ping; one that still waits
// is replaced.
func (l *lane) putBeat(payload []byte, ping uint64) {
	l.mu.Lock()
	l.beat = appendOwn(l.beat[:0], ownBeat, payload)
	l.beat = appendOwn(l.beat, ownPing, binary.LittleEndian.AppendUint64(nil, ping))
	l.unlockAndWake()
}

// putEcho sets the answer to a ping; one that still waits is replaced.
func (l *lane) putEcho(ping []byte) {
	l.mu.Lock()
	l.echo = appendOwn(l.echo[:0], ownEcho, ping)
	l.unlockAndWake()
}

// takeOwn moves the links' own frames that wait behind dst. mu is held.
func (l *lane) takeOwn(dst []byte) []byte {
	dst = append(append(dst, l.beat...), l.echo...)
	l.beat, l.echo = l.beat[:0], l.echo[:0]
	return dst
}

// goodbye lets the writer end behind what waits, with a word of parting on the control lane.
func (l *lane) goodbye(say bool) {
	l.mu.Lock()
	if say && !l.ending {
		l.pending = appendOwn(l.pending, ownGoodbye, nil)
	}
	l.ending = true
	l.unlockAndWake()
}

// close makes put refuse and the writer end.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.unlockAndWake()
}

func (l *lane) unlockAndWake() {
	wake := l.asleep
	l.asleep = false
	l.mu.Unlock()
	if wake {
		l.wake <- struct{}{} // its buffer is empty: asleep was true
	}
}

func (l *lane) room() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.ending {
		return 0
	}
	return max(l.budget-len(l.pending)-l.writing, 0)
}

// take waits for something to write: a heartbeat, or all that is pending. The
// heartbeat is copied behind beat. ok false ends the writer.
func (l *lane) take(beat []byte) (beatNow, buf []byte, ok bool) {
	l.mu.Lock()
	for {
		if l.closed {
			l.mu.Unlock()
			return nil, nil, false
		}
		if len(l.pending) > 0 || len(l.beat) > 0 || len(l.echo) > 0 {
			break
		}
		if l.ending {
			l.mu.Unlock()
			return nil, nil, false
		}
		l.asleep = true
		l.mu.Unlock()
		<-l.wake
		l.mu.Lock()
	}
	beatNow = l.takeOwn(beat)
	if len(l.pending) > 0 {
		buf = l.pending
		l.pending, l.spare = l.spare, nil
		l.writing = len(buf)
	}
	l.mu.Unlock()
	return beatNow, buf, true
}

// wrote says that n more bytes of what was taken are written, and returns the
// heartbeat that has come meanwhile, and whether somebody who was refused has to be
// told that there is room.
func (l *lane) wrote(n int, beat []byte) (beatNow []byte, writable bool) {
	l.mu.Lock()
	l.writing -= n
	beat = l.takeOwn(beat)
	writable = l.refused && len(l.pending)+l.writing < l.budget/2
	l.refused = l.refused && !writable
	l.mu.Unlock()
	return beat, writable
}

// giveBack returns the buffer that take gave, unless it is too large for what
// came lately.
func (l *lane) giveBack(buf []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case cap(buf) <= keptBuffer:
	case len(buf) >= cap(buf)/4:
		l.calm = 0
	default:
		if l.calm++; l.calm >= calmRounds {
			l.calm = 0
			return
		}
	}
	l.spare = buf[:0]
}

// rest is called now and then: a lane that has been silent for a while gives
// its memory back.
func (l *lane) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.asleep || cap(l.pending)+cap(l.spare) <= keptBuffer {
		return
	}
	if l.calm++; l.calm >= calmRounds {
		l.calm, l.pending, l.spare = 0, nil, nil
	}
}

// run writes to conn what comes, until it fails or the lane ends. It calls writable
// when somebody who was refused has to be told.
func (l *lane) run(conn net.Conn, writable func()) error {
	var beat []byte
	room := false
	for {
		now, buf, ok := l.take(beat[:0])
		if !ok {
			return nil
		}
		beat = now
		for rest := buf; ; {
			if len(beat) > 0 {
				if _, err := conn.Write(beat); err != nil {
					return err
				}
				beat = beat[:0]
			}
			if len(rest) == 0 {
				break
			}
			n, err := conn.Write(cutAtFrame(rest))
			if err != nil {
				return err
			}
			rest = rest[n:]
			if beat, room = l.wrote(n, beat); room {
				writable()
			}
		}
		if buf != nil {
			l.giveBack(buf)
		}
	}
}

// cutAtFrame is how much of buf is written at once: whole frames, so that a
// heartbeat may stand behind them.
func cutAtFrame(buf []byte) []byte {
	if len(buf) <= writePiece {
		return buf
	}
	end := 0
	for end < writePiece && end < len(buf) {
		end += frameHead + int(binary.LittleEndian.Uint32(buf[end:])&^ownFrame)
	}
	return buf[:end]
}

// steady is a connection whose writes may take as long as they like if only
// something moves. A write without progress for the stall time fails.
type steady struct {
	net.Conn
	stall time.Duration // 0: as the connection below; set when the greeting is over
	until time.Time     // the deadline set
}

// ErrStalled is why a link ends whose other side takes nothing.
var ErrStalled = errors.New("nothing could be written for too long")

// Write writes all of p. The deadline is real time; so that a stall of our own
// process does not count for a stall of the other, it takes two waits in a row.
func (s *steady) Write(p []byte) (int, error) {
	if s.stall == 0 {
		return s.Conn.Write(p)
	}
	written, waits := 0, 0
	for {
		if now := time.Now(); waits > 0 || s.until.Sub(now) < s.stall/4 {
			s.until = now.Add(s.stall / 2)
			if err := s.Conn.SetWriteDeadline(s.until); err != nil {
				return written, err
			}
		}
		n, err := s.Conn.Write(p[written:])
		written += n
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return written, err
		}
		if n > 0 {
			waits = 0
		} else if waits++; waits == 2 {
			return written, ErrStalled
		}
	}
}
