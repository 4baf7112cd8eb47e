package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/clock"
)

// net is nodes that call each other by function calls.
type net struct {
	mu      sync.Mutex
	drivers map[string]*Driver
	saved   map[string]State
	refuse  error // what the catalog says to nodes that ask to join
}

func newNet() *net { return &net{drivers: map[string]*Driver{}, saved: map[string]State{}} }

func (n *net) node(id uint64, list []string, save func(State) error) *Driver {
	addr := fmt.Sprintf("n%d:1", id)
	d := NewDriver(DriverOptions{
		Options: Options{
			Self: Node{id, fmt.Sprint("name", id), addr}, List: list, State: n.saved[addr],
			NewID: func() ID { return ID{byte(id)} }, Rand: rand.IntN,
		},
		Call: func(ctx context.Context, to string, msg []byte) ([]byte, error) {
			n.mu.Lock()
			d := n.drivers[to]
			n.mu.Unlock()
			switch {
			case to == addr:
				return nil, ErrSelf
			case d == nil:
				return nil, errors.New("nobody there")
			}
			if answer := d.Serve(ctx, msg); answer != nil {
				return answer, nil
			}
			return nil, errors.New("it hung up")
		},
		Save: func(s State) error {
			if save != nil {
				return save(s)
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.saved[addr] = s
			return nil
		},
		Admit: func(context.Context, Node) error { return n.refuse },
		Clock: clock.System(), Logger: slog.New(slog.DiscardHandler),
	})
	n.mu.Lock()
	n.drivers[addr] = d
	n.mu.Unlock()
	return d
}

// Three drivers find together; a fourth joins; a fifth is refused and waits.
func TestDriver(t *testing.T) {
	n := newNet()
	list := []string{"n1:1", "n2:1", "n3:1"}
	var drivers []*Driver
	for id := range uint64(3) {
		drivers = append(drivers, n.node(id+1, list, nil))
	}
	states := make([]State, 3)
	var wg sync.WaitGroup
	for i, d := range drivers {
		wg.Go(func() {
			s, err := d.Run(t.Context())
			if err != nil {
				t.Error(err)
			}
			states[i] = s
		})
	}
	wg.Wait()
	for i, s := range states {
		if s.Cluster() == (ID{}) || s.Cluster() != states[0].Cluster() || n.saved[list[i]].Cluster() != s.Cluster() {
			t.Errorf("node %d is in %v", i+1, s.Cluster())
		}
	}
	fourth := n.node(4, list[:1], nil)
	if s, err := fourth.Run(t.Context()); err != nil || s.Cluster() != states[0].Cluster() || s.Founding.Has(4) {
		t.Errorf("the fourth is in %v, %v", s.Founding, err)
	}
	if s, err := n.node(4, list[:1], nil).Run(t.Context()); err != nil || s.Cluster() != states[0].Cluster() {
		t.Errorf("started again it is in %v, %v", s.Founding, err)
	}

	n.refuse = errors.New("the name is taken")
	ctx, stop := context.WithCancel(t.Context())
	fifth := n.node(5, list, nil)
	fifth.o.Logger = slog.New(slog.NewTextHandler(stopWriter{stop}, nil)) // it ends when it has something to say
	if _, err := fifth.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the fifth ended with %v", err)
	}
	for _, d := range append(drivers, fourth, fifth) {
		d.Wait()
	}
}

// stopWriter stops somebody at the first line that tells why a node was refused.
type stopWriter struct{ stop func() }

func (w stopWriter) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "the name is taken") {
		w.stop()
	}
	return len(line), nil
}

// What could not be saved was never said.
func TestDriverCannotSave(t *testing.T) {
	n := newNet()
	broken := errors.New("the disk is broken")
	d := n.node(1, []string{"n1:1"}, func(State) error { return broken })
	if _, err := d.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("ended with %v", err)
	}
	r := request{kind: ask, from: Node{ID: 2}}
	if answer := d.Serve(t.Context(), r.encode()); answer != nil {
		t.Error("it went on answering")
	}
	d.Wait()
}

// A call that hangs ends with the context of Run.
func TestDriverEnds(t *testing.T) {
	n := newNet()
	d := n.node(1, []string{"n2:1"}, nil)
	called := make(chan struct{})
	var once sync.Once
	d.o.Call = func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		once.Do(func() { close(called) })
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	go func() { <-called; stop() }()
	if _, err := d.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	d.Wait()
}
