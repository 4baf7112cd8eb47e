package queuehost

import (
	"errors"
	"testing"

	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/vfs"
)

// A member whose log turns out to be damaged is given up in the middle of a turn of its group: what the
// group still has to say to it then is of no use, and does no harm.
func TestMemberGivenUpInItsTurn(t *testing.T) {
	x := newTrio(t, 1, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	h := x.nodes[0].reg.member(7)
	led := make(chan struct{})
	x.nodes[0].reg.Get(7).Count(func(uint64, uint64, error) { close(led) })
	<-led
	done := make(chan struct{})
	h.group.Do(func() {
		defer close(done)
		h.pack = h.lane.newPack()
		h.quarantine(errors.New("damaged"))
		h.Role(9, x.nodes[0].id, true)
		h.Apply(&replica.Entry{Index: 100, Term: 9})
		h.ApplyForeign(&replica.Entry{Index: 101, Term: 9}, queue.AppendCommands(nil, []queue.Command{{Kind: queue.Purge}}), nil, nil)
		if _, ok := h.Live(nil); ok {
			t.Error("a member that was given up knows what lives")
		}
		h.Pack(&replica.Entry{Index: 102, Term: 9})
	})
	<-done
}
