package peer

import (
	"bytes"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"holdfast/internal/invariant"
)

func of(n int) func([]byte) []byte {
	return func(dst []byte) []byte { return append(dst, make([]byte, n)...) }
}

func TestALaneHasItsBudget(t *testing.T) {
	l := newLane(1000, 1<<20, new(laneCounts))
	if !l.put(of(400)) || l.room() != 1000-404 {
		t.Fatalf("room %d", l.room())
	}
	if !l.put(of(5000)) {
		t.Fatal("a message is taken whole as long as anything is left")
	}
	refuses := func(when string) {
		t.Helper()
		if l.put(func(dst []byte) []byte { t.Error("asked to write"); return dst }) || l.room() != 0 {
			t.Fatalf("taken beyond the budget, %s", when)
		}
	}
	refuses("while it waits")
	_, buf, _ := l.take(nil)
	refuses("while it is written")
	l.wrote(len(buf)-100, nil)
	if l.room() != 900 || !l.put(of(1)) {
		t.Fatalf("what is written makes room: %d", l.room())
	}
	l.wrote(100, nil)
	l.giveBack(buf)
	l.close()
	refuses("after the end")
	if _, _, ok := l.take(nil); ok {
		t.Fatal("the writer goes on after the end")
	}
}

// Who was refused is told once that there is room: when less than half of the budget is used.
func TestALaneSaysWhenThereIsRoomAgain(t *testing.T) {
	l := newLane(1000, 1<<20, new(laneCounts))
	write := func(n int, want bool) {
		t.Helper()
		if _, writable := l.wrote(n, nil); writable != want {
			t.Fatalf("after %d more bytes, %d are left: told %t", n, len(l.pending)+l.writing, writable)
		}
	}
	l.put(of(996))
	_, buf, _ := l.take(nil)
	write(100, false) // nobody was refused
	l.put(of(96))     // 1000 again
	l.put(of(1))
	l.put(of(1))
	write(500, false) // 500 are left
	write(1, true)
	write(1, false)
	l.put(of(1000))
	l.put(of(1))
	write(398, false) // what waits behind counts
	l.giveBack(buf)
	l.take(nil)
	write(604, false)
	write(1, true)
	if c := *l.counts; c != (laneCounts{messages: 3, bytes: 1000 + 100 + 1004, refused: 3}) {
		t.Errorf("counted: %+v", c)
	}
	l.close()
	l.put(of(1))
	if l.refused || l.counts.refused != 3 {
		t.Error("a lane that is closed has refused something for being full")
	}
}

func TestAMessageTooLongIsOurBug(t *testing.T) {
	defer func() {
		if _, is := recover().(invariant.Violation); !is {
			t.Error("no broken invariant")
		}
	}()
	newLane(1000, 100, new(laneCounts)).put(of(101))
}

func TestALaneUsesItsTwoBuffers(t *testing.T) {
	l := newLane(1<<20, 1<<20, new(laneCounts))
	round := func(n int) []byte {
		l.put(of(n))
		_, buf, _ := l.take(nil)
		l.wrote(len(buf), nil)
		l.giveBack(buf)
		return buf[:1]
	}
	first, second := round(2000), round(2000)
	for range 100 {
		a, b := round(1900), round(1900)
		if &a[0] != &first[0] || &b[0] != &second[0] {
			t.Fatal("a new buffer")
		}
	}
	// One large message does not keep its memory for ever.
	round(1 << 19)
	for range 3 * calmRounds {
		round(100)
	}
	if n := cap(l.pending) + cap(l.spare); n > 2*keptBuffer {
		t.Errorf("%d bytes are kept for messages of 100", n)
	}
}

func TestAHeartbeatGoesFirst(t *testing.T) {
	l := newLane(1<<20, 1<<20, new(laneCounts))
	l.put(of(100))
	l.putBeat([]byte("old"), 1)
	l.putBeat([]byte("new"), 2)
	beat, buf, _ := l.take(nil)
	if want := appendOwn(appendOwn(nil, ownBeat, []byte("new")), ownPing, []byte{2, 0, 0, 0, 0, 0, 0, 0}); !bytes.Equal(beat, want) || len(buf) != 104 {
		t.Fatalf("beat %q, then %d bytes", beat, len(buf))
	}
	l.putBeat([]byte("next"), 3)
	l.putEcho([]byte("12345678"))
	if beat, _ := l.wrote(50, nil); !bytes.Contains(beat, []byte("next")) || !bytes.Contains(beat, []byte("12345678")) {
		t.Error("a heartbeat, or an echo, waits behind what is being written")
	}
}

func TestPiecesEndWithAFrame(t *testing.T) {
	l := newLane(8<<20, 4<<20, new(laneCounts))
	for i := range 2000 {
		l.put(of(i))
	}
	l.put(of(3 << 20))
	_, buf, _ := l.take(nil)
	for rest := buf; len(rest) > 0; {
		piece := cutAtFrame(rest)
		f := newFrames(bytes.NewReader(piece), 4<<20)
		read := 0
		for {
			payload, _, ok, _ := f.next()
			if ok {
				read += frameHead + len(payload)
			} else if err := f.fill(); err == io.EOF {
				break
			}
		}
		if read != len(piece) {
			t.Fatalf("a piece of %d bytes has %d in whole frames", len(piece), read)
		}
		rest = rest[len(piece):]
	}
}

// slow is a connection of which each write fails with a timeout after some bytes.
type slow struct {
	net.Conn
	steps []int // bytes that each write takes
	took  int
}

func (s *slow) SetWriteDeadline(time.Time) error { return nil }

func (s *slow) Write(p []byte) (int, error) {
	if len(s.steps) == 0 {
		s.took += len(p)
		return len(p), nil
	}
	n := min(s.steps[0], len(p))
	s.steps = s.steps[1:]
	s.took += n
	return n, os.ErrDeadlineExceeded
}

func TestAWriteMayBeSlowButNotStandStill(t *testing.T) {
	moves := &slow{steps: []int{1, 0, 1, 0, 5, 1, 0}}
	if n, err := (&steady{Conn: moves, stall: time.Second}).Write(make([]byte, 100)); n != 100 || err != nil || moves.took != 100 {
		t.Errorf("%d bytes, %v", n, err)
	}
	stands := &slow{steps: []int{1, 0, 0}}
	if n, err := (&steady{Conn: stands, stall: time.Second}).Write(make([]byte, 100)); n != 1 || err != ErrStalled {
		t.Errorf("%d bytes, %v", n, err)
	}
}
