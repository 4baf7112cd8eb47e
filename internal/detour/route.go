package detour

import (
	"errors"
	"sync"

	"holdfast/internal/peer"
)

// window is how many bytes of a lane may be under way on a detour before the other end has taken them, Overhead included; a
// message is sent whole as long as there are fewer.
const window = 1 << 20

// ackEvery is how many bytes an end takes of a lane before it says so.
const ackEvery = window / 8

// Reasons why a detour ended, as Handler.Down tells them.
var (
	ErrOver = errors.New("there is a link again")
	errLost = errors.New("the detour was lost")
	errSlow = errors.New("the detour was too slow")
)

// The stages of a detour at one of its ends.
type stage uint8

const (
	opening  stage = iota // open was sent
	asked                 // open was received, and the link of ours has to end first
	accepted              // accept was sent
	live
)

// route is a detour to a node, at this end.
type route struct {
	d    *Detours
	node *node
	via  peer.NodeID
	id   uint64
	ours bool // opened here

	// With d.mu held.
	stage       stage
	patience    int // ticks until it is given up, unless it is live
	incarnation uint64
	info        []byte

	// What comes in; with node.gate held for reading, and each lane's by one goroutine. acked is of mu.
	seen [peer.Lanes]uint64

	mu    sync.Mutex
	over  bool
	sent  [peer.Lanes]uint64 // messages
	out   [peer.Lanes]uint64 // bytes sent
	back  [peer.Lanes]uint64 // of them, taken by the other end
	full  [peer.Lanes]bool   // a message was refused
	mark  [peer.Lanes]uint64 // bytes that had been sent at an earlier tick
	age   [peer.Lanes]int    // ticks since then
	taken [peer.Lanes]uint64 // bytes taken here
	acked [peer.Lanes]uint64 // of them, told
}

// send is Links.Send by the detour.
func (r *route) send(lane peer.Lane, add func([]byte) []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return false
	}
	if r.out[lane]-r.back[lane] >= window {
		r.full[lane] = true
		return false
	}
	f := frame{kind: kindData, from: r.d.o.Self, to: r.node.id, id: r.id, seq: r.sent[lane] + 1}
	n := 0
	if !r.d.links.Send(r.via, lane, func(b []byte) []byte {
		b = f.append(append(b, r.d.o.Tag))
		before := len(b)
		b = add(b)
		n = len(b) - before
		return b
	}) {
		r.full[lane] = true
		return false
	}
	r.sent[lane]++
	r.out[lane] += uint64(n + Overhead)
	return true
}

// room is Links.Room by the detour.
func (r *route) room(lane peer.Lane) int {
	r.mu.Lock()
	left := window - int(r.out[lane]-r.back[lane])
	if r.over {
		left = 0
	}
	r.mu.Unlock()
	return max(0, min(left, r.d.links.Room(r.via, lane)))
}

// acknowledged takes what the other end has taken, and returns the lanes that have room again for who was refused.
func (r *route) acknowledged(taken [peer.Lanes]uint64) (lanes []peer.Lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, n := range taken {
		if n > r.out[l] || n < r.back[l] {
			continue // nothing that an honest end says
		}
		r.back[l] = n
		if r.full[l] && r.out[l]-n < window/2 {
			r.full[l] = false
			lanes = append(lanes, peer.Lane(l))
		}
	}
	return lanes
}

// wasFull says whether a message was refused on a lane that may have room now.
func (r *route) wasFull(lane peer.Lane) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.full[lane] && r.out[lane]-r.back[lane] < window
	if was {
		r.full[lane] = false
	}
	return was
}

// take counts what was taken of a lane, and says so now and then; n 0 says what was not said.
func (r *route) take(lane peer.Lane, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken[lane] += uint64(n)
	due := r.taken[lane] - r.acked[lane]
	if r.over || due == 0 || n > 0 && due < ackEvery {
		return
	}
	f := frame{kind: kindAck, from: r.d.o.Self, to: r.node.id, id: r.id, taken: r.taken}
	if r.d.tell(r.via, &f) {
		r.acked = r.taken
	}
}

// slow counts a tick, and says whether something that was sent on the detour has not been taken for too long.
func (r *route) slow() (is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.mark {
		if r.back[l] >= r.mark[l] {
			r.mark[l], r.age[l] = r.out[l], 0
			continue
		}
		r.age[l]++
		is = is || r.age[l] >= slowAfter
	}
	return is
}

// end has nothing sent any more.
func (r *route) end() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
}
