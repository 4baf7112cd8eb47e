package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// queues of a round, by what else happens to them.
const (
	plainQueues = 4
	largeQueue  = "large" // gets the one large message, too
)

// runRounds kills the broker n times.
func runRounds(o options) error {
	r := rand.New(rand.NewPCG(o.seed, 1))
	fmt.Printf("crash rounds: %d rounds, seed %d\n", o.n, o.seed)
	var journals []*journal
	for i := range plainQueues {
		journals = append(journals, newJournal(fmt.Sprintf("plain%d", i)))
	}
	purged, deleted := newJournal("purged"), newJournal("deleted")
	journals = append(journals, newJournal(largeQueue), purged, deleted)
	if err := o.broker.Start(); err != nil {
		return err
	}
	if err := declare(o.broker.URL(), journals); err != nil {
		return err
	}
	letters := newCarried()
	if err := letters.declare(o.broker.URL()); err != nil {
		return err
	}
	var slowest time.Duration
	for round := 1; round <= o.n; round++ {
		length := time.Duration(50+r.IntN(3500)) * time.Millisecond
		stop := make(chan struct{})
		var loads []*load
		for _, j := range journals {
			j.deleting = false
			l := &load{url: o.broker.URL(), journal: j, round: round, stop: stop}
			l.start(r, j.queue == largeQueue && round%3 == 1)
			loads = append(loads, l)
			if j == purged {
				after := time.Duration(r.Int64N(int64(length)))
				l.wait.Go(func() { l.purge(after) })
			}
			if j == deleted {
				after := time.Duration(r.Int64N(int64(length)))
				l.wait.Go(func() { l.remove(after) })
			}
		}
		l := &load{url: o.broker.URL(), journal: journals[0], round: round, stop: stop}
		letters.start(l)
		loads = append(loads, l)
		time.Sleep(length)
		killed := time.Now()
		if err := o.broker.Kill(); err != nil {
			return err
		}
		close(stop)
		for _, l := range loads {
			l.wait.Wait()
		}
		// Now and then the broker dies while it recovers, too.
		if r.IntN(5) == 0 {
			if err := o.broker.Launch(); err != nil {
				return err
			}
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			if err := o.broker.Kill(); err != nil {
				return err
			}
		}
		began := time.Now()
		if err := o.broker.Start(); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		took := time.Since(began)
		slowest = max(slowest, took)
		keep := r.IntN(3) > 0
		if err := verify(o.broker.URL(), journals, killed, keep); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if o.verbose || round%10 == 0 || round == o.n {
			t := total(journals)
			fmt.Printf("round %3d: killed after %.1f s, up in %.2f s; in all %d confirmed, %d delivered (%d redelivered), %d settled, %d purged or deleted, %d found again\n",
				round, length.Seconds(), took.Seconds(), t.confirmed, t.delivered, t.redelivered, t.settled, t.purged, t.verified)
		}
		if round%10 == 0 || round == o.n {
			if err := letters.await(o.broker.URL()); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		faults := append(faultsOf(journals), letters.faults...)
		if cries, err := cries(o.broker.Log); err != nil || len(cries) > 0 {
			faults = append(faults, fmt.Sprintf("the broker's log: %q %v", cries, err))
		}
		if len(faults) > 0 {
			return fmt.Errorf("round %d: %d faults:\n%s", round, len(faults), strings.Join(faults[:min(len(faults), 10)], "\n"))
		}
	}
	if total(journals).verified == 0 {
		return fmt.Errorf("no message was found after a restart: nothing was tested")
	}
	fmt.Printf("crash rounds: %d passed, 0 failed; slowest start %.2f s; %d messages were carried\n", o.n, slowest.Seconds(), len(letters.came))
	return nil
}

func declare(url string, journals []*journal) error {
	c, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer c.Close()
	ch, err := c.Channel()
	if err != nil {
		return err
	}
	for _, j := range journals {
		if _, err := ch.QueueDeclare(j.queue, true, false, false, false, nil); err != nil {
			return err
		}
	}
	return nil
}

// verify drains every queue after a restart and checks what came. With keep the
// messages go back to the queue, else they are acked.
func verify(url string, journals []*journal, killed time.Time, keep bool) error {
	// A queue may have been deleted and not declared anew.
	if err := declare(url, journals); err != nil {
		return err
	}
	var all sync.WaitGroup
	errs := make([]error, len(journals))
	for i, j := range journals {
		all.Go(func() {
			if err := drain(url, j, killed, keep); err != nil {
				errs[i] = fmt.Errorf("verifying %s: %w", j.queue, err)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// drain takes everything a queue has, checks it, and then lets it go back or
// acks it.
func drain(url string, j *journal, killed time.Time, keep bool) error {
	c, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer c.Close()
	ch, err := c.Channel()
	if err != nil {
		return err
	}
	q, err := ch.QueueDeclarePassive(j.queue, true, false, false, false, nil)
	if err != nil {
		return err
	}
	in, err := ch.Consume(j.queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	var ids []string
	var got []*message
	var last amqp.Delivery
	for range q.Messages {
		select {
		case d, open := <-in:
			if !open {
				return fmt.Errorf("the consumer ended after %d of %d messages", len(ids), q.Messages)
			}
			m := j.delivered(d.MessageId, d.Redelivered, nil)
			j.checkBody(m, d.Body)
			if m != nil {
				got = append(got, m)
			}
			ids, last = append(ids, d.MessageId), d
		case <-time.After(time.Minute):
			return fmt.Errorf("%d of %d messages came, then nothing for a minute", len(ids), q.Messages)
		}
	}
	j.check(ids, killed)
	if keep || len(ids) == 0 {
		// Closing gives them back; wait until they are.
		if err := c.Close(); err != nil {
			return err
		}
		return allBack(url, j.queue, q.Messages)
	}
	for _, m := range got {
		j.settle(m, "acked after the check")
	}
	if err := last.Ack(true); err != nil {
		return err
	}
	return ch.Qos(1, 0, false) // the acks have arrived
}

func allBack(url, queue string, n int) error {
	c, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer c.Close()
	ch, err := c.Channel()
	if err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			return err
		}
		if q.Messages == n {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d messages were held and given back, %d are ready", n, q.Messages)
		}
	}
}

func total(journals []*journal) counts {
	var t counts
	for _, j := range journals {
		j.mu.Lock()
		c := j.counts
		j.mu.Unlock()
		t.confirmed += c.confirmed
		t.delivered += c.delivered
		t.redelivered += c.redelivered
		t.settled += c.settled
		t.purged += c.purged
		t.verified += c.verified
	}
	return t
}

func faultsOf(journals []*journal) []string {
	var all []string
	for _, j := range journals {
		all = append(all, j.takeFaults()...)
	}
	return all
}

// cries are lines of the broker's log that tell of a fault of its own.
func cries(path string) ([]string, error) {
	log, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var lines []string
	for line := range strings.Lines(string(log)) {
		for _, word := range []string{"panic", "invariant", "DATA RACE", "fatal error", "corrupt", "quarantine"} {
			if strings.Contains(line, word) {
				lines = append(lines, strings.TrimSpace(line))
				break
			}
		}
	}
	return lines[:min(len(lines), 5)], nil
}
