package queuehost

import (
	"bytes"
	"testing"

	"holdfast/internal/bytecodec"
	"holdfast/internal/clock"
	"holdfast/internal/message"
	"holdfast/internal/replica"
)

// What a node has sent to a member that does not lead, or for a queue that was deleted, is not under way any more when it has
// come: or the window between the two nodes would close for good.
func TestPublishesOfATryThatIsOverAreGivenBack(t *testing.T) {
	for name, end := range map[string]func(r *Registry, s *session){
		"the member leads no more": func(_ *Registry, s *session) { s.lost(0) },
		"the queue was deleted":    func(r *Registry, _ *session) { r.guest(9).forget(7) },
	} {
		t.Run(name, func(t *testing.T) {
			log := newFakeLog()
			reg := New(Options{Log: log, Node: replica.Open(replica.Options{Log: log, Shards: 1, Clock: clock.NewManual(testTime)}), Self: 1, Stepped: true})
			g := reg.guest(9)
			head := farHead{life: life{1, 1}, queue: 7, try: 1}
			send := func(kind farKind, rest []byte) {
				head.kind = kind
				reg.Receive(9, append(head.append(nil), rest...))
			}
			g.mu.Lock()
			g.begin(head.life)
			s := newSession(g, head)
			g.sessions[7] = s
			g.mu.Unlock()
			big := Publish{Message: message.Message{Head: []byte("head"), Chunks: [][]byte{bytes.Repeat([]byte("a"), 100), bytes.Repeat([]byte("b"), 50)}}}
			small := Publish{Message: message.Message{Head: []byte("small")}}
			run := func(first uint64) []byte {
				return appendPublish(appendPublish(bytecodec.AppendUints(nil, 0, first), &big), &small)
			}
			send(farChunk, big.Message.Chunks[0])
			end(reg, s)
			send(farChunk, big.Message.Chunks[1])
			send(farPublish, run(1))
			want(t, "given back", g.flow.given.Load(), big.cost()+small.cost())
			send(farChunk, big.Message.Chunks[0]) // its publish does not come
			head.try++
			send(farResume, bytecodec.AppendUint(nil, 1))
			head.try--
			want(t, "given back afterwards", g.flow.given.Load(), big.cost()+small.cost())
		})
	}
}

// The same for what waits for settlements that were sent before it on the other path.
func TestPublishesThatWaitForSettlementsAreGivenBack(t *testing.T) {
	g := &guest{flow: &inflow{window: 1}}
	g.flow.guest = g
	s := newSession(g, farHead{try: 1})
	small := Publish{Message: message.Message{Head: []byte("small")}}
	s.held = []heldMessage{{farPublish, newCut(appendPublish(bytecodec.AppendUints(nil, 0, 1), &small))}, {farBehind, newCut(appendPublish(bytecodec.AppendUints(nil, 9, 0, 2), &small))}}
	s.endLocked()
	want(t, "given back", g.flow.given.Load(), 2*small.cost())
}
