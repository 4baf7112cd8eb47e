package queuehost

import (
	"fmt"
	"sync"
	"testing"

	"holdfast/internal/seglog"
)

// R569: with nodes at work, replies of many publishers reach many consumers, each publisher's in their order, and nobody has to be woken by
// something else.
func TestRepliesLive(t *testing.T) {
	n, home := startNode(t, &nullLog{}, transient(7))
	p := newPair(t, home, transient(7), func() { n.Close(false) })
	defer p.close()
	const consumers, publishers, each = 4, 4, 500
	handles := map[string]*Handle{}
	home.o.Reply = func(_, name []byte) *Handle { return handles[string(name)] }
	var heard []*hearer
	for i := range consumers {
		h, err := home.Create(QueueDef{ID: lastMailbox + 1 + seglog.GroupID(i), Name: fmt.Sprint(i), Exclusive: true})
		if err != nil {
			t.Fatal(err)
		}
		c := newHearer(h)
		c.noAck = true
		c.attach()
		handles[fmt.Sprint(i)], heard = h, append(heard, c)
	}
	box := p.entry.Mailbox(homeNode)
	var all sync.WaitGroup
	for who := range publishers {
		all.Go(func() {
			credit := p.entry.NewCredit()
			for i := range each {
				told := make(chan Outcome, 1)
				box.Publish([]Publish{{Message: text(fmt.Sprint(who, " ", i)), For: NewAddressee("", fmt.Sprint(i%consumers)), Ticket: onceTold{told}, Credit: credit}})
				if o := <-told; o != Accepted {
					t.Errorf("reply %d of %d: %v", i, who, o)
				}
			}
		})
	}
	all.Wait()
	for i, c := range heard {
		c.mu.Lock()
		for len(c.bodies) < publishers*each/consumers {
			c.more.Wait()
		}
		next := [publishers]int{}
		for _, b := range c.bodies {
			var who, seq int
			if _, err := fmt.Sscan(b, &who, &seq); err != nil || seq != next[who]*consumers+i {
				t.Fatalf("consumer %d: %q comes after %d of that publisher", i, b, next[who])
			}
			next[who]++
		}
		c.mu.Unlock()
	}
}

// onceTold is the ticket of one publish.
type onceTold struct{ told chan Outcome }

func (t onceTold) Settled(_, _ uint64, o Outcome) { t.told <- o }
