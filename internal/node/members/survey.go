package members

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/internal/mgmt"
	"holdfast/internal/seglog"
)

// Waits of an order for many queues. A node that lets it wait for longer is left out from then on: one that stands still must not
// keep the others from being looked after.
const (
	// listWait is how long a node gets to say what it leads.
	listWait = 5 * time.Second
	// moveWait is how long it gets to hand one leadership over.
	moveWait = takeOver + 2*time.Second
)

// survey is what an order for many queues has found out about nodes.
type survey struct {
	m    *Manager
	wait func(node uint64, d time.Duration) time.Duration // for tests

	mu  sync.Mutex
	bad map[uint64]string // nodes that are left out, and why
}

func (m *Manager) survey() *survey {
	return &survey{m: m, wait: m.patience, bad: map[uint64]string{}}
}

// fail leaves a node out from now on.
func (s *survey) fail(node uint64, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad[node] == "" {
		s.bad[node] = why
	}
}

func (s *survey) isBad(node uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bad[node] != ""
}

// able reports whether a node may lead, as far as was seen.
func (s *survey) able(node uint64) bool { return s.m.able(node) && !s.isBad(node) }

// healthy reports whether it may lead and has no alarm.
func (s *survey) healthy(node uint64) bool {
	return s.able(node) && (s.m.o.Alarmed == nil || !s.m.o.Alarmed(node))
}

// incomplete says what the order could not do, nil if it did all.
func (s *survey) incomplete(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var why []string
	for node, text := range s.bad {
		why = append(why, fmt.Sprintf("node %s %s", s.m.o.Name(node), text))
	}
	slices.Sort(why)
	if ctx.Err() != nil {
		why = append(why, "the time was over before everything was done; ask again to go on")
	}
	if len(why) == 0 {
		return nil
	}
	return &mgmt.Incomplete{Text: "this was done in part only: " + strings.Join(why, "; ")}
}

// census is who leads which groups, as the nodes say that are up.
type census map[uint64]ledBy

type ledBy struct {
	led
	node uint64
}

// count asks all nodes which groups they lead. A node that does not answer leads none, and is left out.
func (s *survey) count(ctx context.Context) census {
	var (
		mu  sync.Mutex
		all sync.WaitGroup
	)
	m, c := s.m, census{}
	for n := range m.o.View().Nodes().All() {
		if !m.o.Up(n.ID) || s.isBad(n.ID) {
			continue
		}
		all.Go(func() {
			for after := uint64(0); ; {
				r, err := s.ask(ctx, n.ID, question{Do: doLed, After: after}, listWait)
				if err != nil {
					if ctx.Err() == nil {
						m.o.Logger.Warn("a node does not say which quorum queues it leads", "node", m.o.Name(n.ID), "error", err)
						s.fail(n.ID, "does not say which quorum queues it leads")
					}
					return
				}
				mu.Lock()
				for _, l := range r.Led {
					c[l.Group] = ledBy{l, n.ID}
				}
				mu.Unlock()
				if after = r.Next; after == 0 {
					return
				}
			}
		})
	}
	all.Wait()
	return c
}

func (s *survey) ask(ctx context.Context, node uint64, q question, wait time.Duration) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, s.wait(node, wait))
	defer cancel()
	return s.m.asker.ask(ctx, node, q)
}

// move hands a leadership over. If one of the two nodes gives no answer, or does not take it, it is left out.
func (s *survey) move(ctx context.Context, group seglog.GroupID, from, to uint64) error {
	if s.isBad(from) || s.isBad(to) {
		return errLate
	}
	_, err := s.ask(ctx, from, question{Do: doTransfer, Queue: uint64(group), Node: to}, moveWait)
	if err == nil || ctx.Err() != nil {
		return err
	}
	var f *failure
	switch {
	case !errors.As(err, &f):
	case f.problem == late, f.problem == unreached:
		s.fail(from, "does not answer")
	case f.text == notTaken(s.m.o.Name(to)):
		s.fail(to, "does not take over the leadership of quorum queues")
	}
	s.m.o.Logger.Info("the leadership of a quorum queue was not handed over", "queue", uint64(group), "to", s.m.o.Name(to), "error", err)
	return err
}

// notTaken is what a node says whose leadership another one has not taken over.
func notTaken(node string) string {
	return fmt.Sprintf("the member on node %s did not take over", node)
}
