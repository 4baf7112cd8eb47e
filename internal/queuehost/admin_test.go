package queuehost

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/seglog"
)

// T32: a queue deleted while publishes wait: they count as accepted.
func TestSealAndDrop(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	s, tk := &sink{}, &tickets{}
	h.Attach(unlimited(1), s, func(queue.ConsumerID, error) {})
	r.settle()
	publish(h, tk, true, "a", "b")
	var answers []string
	note := func(n uint64, err error) { answers = append(answers, fmt.Sprint(n, " ", err)) }
	h.Seal(true, false, note)
	h.Seal(false, true, note)
	h.Seal(false, false, note)
	publish(h, tk, true, "c")
	h.Attach(unlimited(0), &sink{}, func(_ queue.ConsumerID, err error) { note(0, err) })
	r.step()
	want(t, "answers", answers, []string{
		"0 PRECONDITION_FAILED - queue 'durable' in vhost '/' in use",
		"0 PRECONDITION_FAILED - queue 'durable' in vhost '/' is not empty",
		"1 <nil>",
		"0 NOT_FOUND - no queue 'durable' in vhost '/'",
	})
	want(t, "outcomes while it is not decided", tk.got, []outcome(nil))
	done := false
	gone := errors.New("deleted")
	r.reg.Drop(7, gone, func() { done = true })
	publish(h, tk, true, "d")
	h.Get(h.Getter(ConsumerSpec{}, s), false, func(_ Delivery, _ uint64, _ bool, err error) { note(0, err) })
	r.settle()
	want(t, "outcomes", tk.got, []outcome{{1, 1, Gone}, {1, 2, Gone}, {1, 1, Gone}})
	want(t, "parked", len(h.host.unpark()), 0)
	want(t, "consumer told", s.cancelled, gone)
	want(t, "done", done, true)
	want(t, "get", answers[4:], []string{"0 NOT_FOUND - no queue 'durable' in vhost '/'"})
	last := r.log.records[len(r.log.records)-1]
	want(t, "last record", last.Kind, seglog.KindDrop)
	if r.reg.Get(7) != nil || r.node.Group(7) != nil {
		t.Fatal("the queue is still there")
	}
	want(t, "consumer's deliveries that were held back", len(s.got), 0)
}

func TestUnsealTakesPublishesAgain(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	h := r.queue(7)
	tk := &tickets{}
	h.Seal(false, false, func(uint64, error) {})
	h.Unseal()
	publish(h, tk, false, "a")
	r.step()
	want(t, "outcomes", tk.got, []outcome{{1, 1, Accepted}})
}

// A publish that comes while a deletion is not decided is not confirmed before: should the queue stay, after all or after a
// crash, the message has to be in it.
func TestPublishesWaitForTheDeletion(t *testing.T) {
	for _, def := range []QueueDef{durable(7), transient(7)} {
		r := newRig(t, newFakeLog(), []QueueDef{def})
		h := r.queue(7)
		tk := &tickets{}
		credit := r.reg.NewCredit()
		put := func(seq uint64, body string) {
			h.Publish([]Publish{{Message: text(body), Persistent: true, Ticket: tk, Seq: seq, Credit: credit}})
		}
		big := message.Message{Head: []byte("big"), Chunks: [][]byte{[]byte("chunk"), []byte("chunk")}}
		put(1, "a")
		h.Seal(false, false, func(uint64, error) {})
		put(2, "b")
		h.Publish([]Publish{{Message: big, Persistent: true, Ticket: tk, Seq: 3, Credit: credit}})
		r.settle()
		put(4, "c")
		r.settle()
		want(t, "outcomes while it is not decided", tk.got, []outcome{{1, 1, Accepted}})
		put(5, "d")
		h.Unseal()
		put(6, "e")
		s := &sink{}
		h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
		put(7, "f")
		r.settle()
		var told []uint64
		for _, o := range tk.got {
			for seq := o.first; seq <= o.last; seq++ {
				told = append(told, seq)
			}
			want(t, "outcome", o.o, Accepted)
		}
		want(t, "told", told, []uint64{1, 2, 3, 4, 5, 6, 7})
		want(t, "order", s.bodies(), []string{"a", "b", "big", "c", "d", "e", "f"})
		want(t, "credit", credit.InFlight(), int64(0))
		h.Seal(false, false, func(uint64, error) {})
		put(8, "g")
		r.settle()
		r.reg.Drop(7, errors.New("deleted"), nil)
		r.settle()
		want(t, "the last", tk.got[len(tk.got)-1], outcome{8, 8, Gone})
		want(t, "credit", credit.InFlight(), int64(0))
	}
}

type owner struct {
	unused  []seglog.GroupID
	expired []seglog.GroupID
	seals   bool
	dropped []string
	held    []string // what WhyHeld says
}

func (o *owner) Unused(id seglog.GroupID) bool {
	o.unused = append(o.unused, id)
	return o.seals
}

func (o *owner) Expired(id seglog.GroupID) { o.expired = append(o.expired, id) }

func (o *owner) DeadLetters(*Handle, []DeadLetter) {}

func (o *owner) WhyHeld(h *Handle) []string { return o.held }

func (o *owner) Dropped(h *Handle, reason queue.Reason, n uint64) {
	o.dropped = append(o.dropped, fmt.Sprintf("%d of %d %v", n, h.ID(), reason))
}

func TestAutoDeleteTellsTheOwner(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{{ID: 7, AutoDelete: true}, {ID: 8}})
	o := &owner{}
	r.reg.SetOwner(o)
	for _, id := range []seglog.GroupID{7, 8} {
		c := r.queue(id).Attach(unlimited(0), &sink{}, func(queue.ConsumerID, error) {})
		r.step()
		r.queue(id).Detach(c, nil)
		r.step()
	}
	want(t, "unused", o.unused, []seglog.GroupID{7})
}

// R420: a queue that its last consumer has left is sealed before whoever took the consumer away is answered.
func TestUnusedIsSealedBeforeAnybodyKnows(t *testing.T) {
	for _, how := range []string{"detached", "cancelled", "another comes at once"} {
		r := newRig(t, newFakeLog(), []QueueDef{{ID: 7, AutoDelete: true}})
		o := &owner{seals: true}
		r.reg.SetOwner(o)
		h := r.queue(7)
		c := h.Attach(unlimited(0), &sink{}, func(queue.ConsumerID, error) {})
		r.settle()
		var answers []string
		attach := func() {
			h.Attach(unlimited(0), &sink{}, func(_ queue.ConsumerID, err error) { answers = append(answers, fmt.Sprint(err)) })
		}
		left := func() { answers = append(answers, fmt.Sprint("left ", h.host.sealed)) }
		gone := "NOT_FOUND - no queue '' in vhost ''"
		switch how {
		case "detached":
			h.Detach(c, left)
		case "cancelled":
			h.Cancel(c, left)
		default: // in the same entry: it lives on
			h.Detach(c, left)
			attach()
			r.settle()
			attach()
			r.settle()
			want(t, how, answers, []string{"left false", "<nil>", "<nil>"})
			want(t, how, o.unused, []seglog.GroupID(nil))
			continue
		}
		r.settle()
		attach()
		r.settle()
		want(t, how, answers, []string{"left true", gone})
		want(t, how, o.unused, []seglog.GroupID{7})
		h.Unseal() // it could not be deleted
		attach()
		r.settle()
		want(t, how, answers, []string{"left true", gone, "<nil>"})
	}
}

func TestConsumersAreListed(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	h := r.queue(7)
	h.Attach(ConsumerSpec{Tag: "x", Prefetch: 1, Credit: Unlimited}, &sink{}, func(queue.ConsumerID, error) {})
	h.Getter(ConsumerSpec{}, &sink{})
	publish(h, nil, false, "a", "b")
	var infos []ConsumerInfo
	var x Explanation
	h.Consumers(func(l []ConsumerInfo) { infos = slices.Clone(l) })
	h.Explain(func(e Explanation) { x = e })
	r.step()
	want(t, "consumers", len(infos), 1)
	want(t, "consumer", []any{infos[0].Spec.Tag, infos[0].Unacked, infos[0].Is.Active()}, []any{"x", uint64(1), true})
	want(t, "blocked by", x.BlockedBy, "prefetch")
}
