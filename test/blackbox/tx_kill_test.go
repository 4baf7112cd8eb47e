package blackbox

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// txWorker commits one transaction after the other: some messages to each of the queues, and one message of a queue of its own, a
// count, is taken and put back one higher. So there is one message in that queue after each transaction, whatever is lost.
type txWorker struct {
	t      *testing.T
	name   string
	queues []string
	txs    int          // begun
	ok     map[int]bool // commit-ok has come
	none   map[int]bool // it has failed before its commit
	all    *atomic.Int64
	large  func() // called when a large transaction is about to be committed
}

func (w *txWorker) own() string { return "count-" + w.name }

// large is a transaction that takes several entries of a queue.
const large = 900

// size is how many messages a transaction has in each queue.
func (w *txWorker) size(tx int) int {
	if tx%4 == 3 {
		return large
	}
	return 1 + tx%13
}

// run goes on until something fails, which is returned.
func (w *txWorker) run(ch *amqp.Channel, stop *atomic.Bool) error {
	if err := ch.Tx(); err != nil {
		return err
	}
	for !stop.Load() {
		w.txs++
		tx := w.txs
		w.none[tx] = true
		d, there, err := ch.Get(w.own(), false)
		if err != nil {
			return err
		}
		if !there {
			return fmt.Errorf("the count is not there")
		}
		count := 0
		if _, err := fmt.Sscan(string(d.Body), &count); err != nil {
			return err
		}
		pad := ""
		if w.size(tx) == large {
			pad = strings.Repeat("x", 1000)
		}
		for i := range w.size(tx) {
			for _, q := range w.queues {
				if err := ch.Publish("", q, false, false, persistent(fmt.Sprintf("%s %d %d %s", w.name, tx, i, pad))); err != nil {
					return err
				}
			}
		}
		if err := ch.Publish("", w.own(), false, false, persistent(fmt.Sprint(count+1))); err != nil {
			return err
		}
		if err := d.Ack(false); err != nil {
			return err
		}
		delete(w.none, tx)
		if w.size(tx) == large && w.large != nil {
			go w.large()
		}
		if err := ch.TxCommit(); err != nil {
			return err
		}
		w.ok[tx] = true
		w.all.Add(1)
	}
	return nil
}

// check looks at what is in the queues, and takes it out.
func (w *txWorker) check(ch *amqp.Channel) {
	t := w.t
	t.Helper()
	if d, more, err := ch.Get(w.own(), false); err != nil || !more {
		t.Errorf("%s: the count is gone: %v", w.name, err)
	} else {
		if d.MessageCount != 0 {
			t.Errorf("%s: there are %d counts", w.name, d.MessageCount+1)
		}
		ok(t, d.Nack(false, true))
	}
}

// txCrew is workers that work on the same queues.
type txCrew struct {
	t       *testing.T
	queues  []string
	workers []*txWorker
	commits atomic.Int64
}

func newTxCrew(t *testing.T, setup *amqp.Channel, workers int, args amqp.Table, queues ...string) *txCrew {
	c := &txCrew{t: t, queues: queues}
	for _, q := range queues {
		must(setup.QueueDeclare(q, true, false, false, false, args))(t)
	}
	for i := range workers {
		w := &txWorker{t: t, name: fmt.Sprint("w", i), queues: queues, ok: map[int]bool{}, none: map[int]bool{}, all: &c.commits}
		c.workers = append(c.workers, w)
		must(setup.QueueDeclare(w.own(), true, false, false, false, args))(t)
		must(setup.PublishWithDeferredConfirmWithContext(t.Context(), "", w.own(), false, false, persistent("1")))(t).Wait()
	}
	return c
}

// check takes everything out of the queues and compares: of each transaction there is all or nothing in each queue, and of one that was
// confirmed all in all of them.
func (c *txCrew) check(ch *amqp.Channel) (half int) {
	t := c.t
	t.Helper()
	for _, w := range c.workers {
		w.check(ch)
	}
	counts := map[string]map[string]int{}
	for _, q := range c.queues {
		counts[q] = map[string]int{}
		for {
			d, there, err := ch.Get(q, true)
			ok(t, err)
			if !there {
				break
			}
			parts := strings.Fields(string(d.Body))
			counts[q][parts[0]+" "+parts[1]]++
		}
	}
	for _, w := range c.workers {
		for tx := 1; tx <= w.txs; tx++ {
			some, all := false, true
			for _, q := range c.queues {
				n := counts[q][fmt.Sprint(w.name, " ", tx)]
				if n != 0 && n != w.size(tx) {
					t.Errorf("%s: of transaction %d there are %d of %d messages in %s", w.name, tx, n, w.size(tx), q)
				}
				if n == 0 && w.ok[tx] {
					t.Errorf("%s: transaction %d was confirmed, and is not in %s", w.name, tx, q)
				}
				if n > 0 && w.none[tx] {
					t.Errorf("%s: transaction %d was not committed, and is in %s", w.name, tx, q)
				}
				some, all = some || n > 0, all && n > 0
			}
			if some && !all {
				half++
			}
		}
		w.txs, w.ok, w.none = 0, map[int]bool{}, map[int]bool{}
	}
	return half
}

// A kill in the middle of commits leaves all of a transaction or nothing in each queue; what was confirmed is there. R530, R531
func TestTxKilled(t *testing.T) {
	t.Parallel()
	rounds := 4
	if *heavyToo {
		rounds = 25
	}
	n := ownBroker(t)
	crew := newTxCrew(t, n.open(), 3, nil, "a", "b")
	half := 0
	for round := range rounds {
		var all sync.WaitGroup
		var stop atomic.Bool
		began := crew.commits.Load()
		killed := make(chan error)
		kill := sync.OnceFunc(func() {
			time.Sleep(time.Duration(round) * 500 * time.Microsecond) // somewhere in the commit
			killed <- n.Kill()
		})
		for _, w := range crew.workers {
			w.large = func() {
				if crew.commits.Load() > began+5 {
					kill()
				}
			}
			ch := channel(t, dialURL(t, n.URL()))
			all.Go(func() { _ = w.run(ch, &stop) })
		}
		ok(t, <-killed)
		all.Wait()
		ok(t, n.Start())
		half += crew.check(n.open())
	}
	t.Logf("%d transactions in %d rounds; %d were in one queue and not in the other", crew.commits.Load(), rounds, half)
}

// The leader of quorum queues is killed in the middle of commits: all or nothing in each queue, and nothing twice. R530, R534
func TestTxLeaderKilled(t *testing.T) {
	t.Parallel()
	rounds := 1
	if *heavyToo {
		rounds = 8
	}
	tr := newTrio(t)
	tr.start(0, 1, 2)
	crew := newTxCrew(t, tr.nodes[0].open(), 2, quorumArgs, "a", "b")
	leads := 0
	for round := range rounds {
		var all sync.WaitGroup
		var stop atomic.Bool
		began := crew.commits.Load()
		enough := func(n int64) bool { return crew.commits.Load()-began > n }
		for i, w := range crew.workers {
			n := tr.nodes[(leads+1+i)%3] // none that is killed
			all.Go(func() {
				for !stop.Load() {
					c, err := amqp.Dial(n.URL())
					if err != nil {
						t.Error(err)
						return
					}
					ch, err := c.Channel()
					if err != nil {
						t.Error(err)
						return
					}
					err = w.run(ch, &stop)
					if err != nil && !stop.Load() {
						time.Sleep(20 * time.Millisecond) // the queue has no leader
					}
					_ = c.Close()
				}
			})
		}
		until(t, "some transactions are committed", func() bool { return enough(int64(15 + 7*round)) })
		ok(t, tr.nodes[leads].Kill())
		gone := crew.commits.Load()
		until(t, "they go on", func() bool { return crew.commits.Load() > gone+10 })
		stop.Store(true)
		all.Wait()
		ok(t, tr.nodes[leads].Start())
		half := crew.check(tr.nodes[(leads+1)%3].open())
		t.Logf("%d transactions; %d were in one queue and not in the other", crew.commits.Load()-began, half)
		until(t, "another one leads", func() bool {
			for i, m := range tr.nodes[(leads+1)%3].members("a") {
				if m.State == "leader" {
					leads = i
					return true
				}
			}
			return false
		})
	}
}
