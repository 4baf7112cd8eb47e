package blackbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ends asserts that a start comes to nothing, and why.
func (m *member) ends(text string) {
	m.t.Helper()
	ok(m.t, m.Launch())
	select {
	case <-m.Ended():
	case <-time.After(time.Minute):
		m.t.Fatalf("it has not ended:\n%s", m.Tail())
	}
	m.said(text)
}

// A data folder is of a node that is alone or of one in a cluster, and is refused where it is taken for the other.
func TestClusterFoldersAreOfOneKind(t *testing.T) {
	t.Parallel()
	m := newMember(t, secretFile(t), "n1")
	clustered := m.Extra
	m.Extra = nil
	ok(t, m.Start())
	must(m.open().QueueDeclare("alone", true, false, false, false, nil))(t)
	ok(t, m.Stop())
	m.Extra = clustered
	m.ends("belongs to a node that was always alone")
	m.Extra = nil
	ok(t, m.Start())
	must(m.open().QueueDeclarePassive("alone", true, false, false, false, nil))(t)
	m.does("stop_app")
	m.does("reset")
	ok(t, m.Stop())

	m.Extra = clustered
	ok(t, m.Start())
	m.absent("alone")
	must(m.open().QueueDeclare("clustered", true, false, false, false, nil))(t)
	ok(t, m.Stop())
	m.Extra = nil
	m.ends("belongs to a node of a cluster")
	m.Extra = clustered
	ok(t, m.Start())
	must(m.open().QueueDeclarePassive("clustered", true, false, false, false, nil))(t)
}

// What was declared and filled last is there when all nodes are killed at once and nobody knows any more what was agreed on.
func TestClusterKilledRightAfterADeclare(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for round := range 3 {
		for i, m := range c {
			ch := m.open()
			ok(t, ch.Confirm(false))
			q := fmt.Sprintf("q%d-%d", round, i)
			must(ch.QueueDeclare(q, true, false, false, false, nil))(t)
			confirmed(t, ch, "", q, q)
		}
		for _, m := range c {
			ok(t, m.Kill())
		}
		for _, m := range c {
			ok(t, m.Launch())
		}
		for _, m := range c {
			ok(t, m.Ready())
		}
		for i, m := range c {
			q := fmt.Sprintf("q%d-%d", round, i)
			if d := get(t, m.open(), q, false); string(d.Body) != q {
				t.Errorf("queue %s has %q", q, d.Body)
			}
		}
	}
}

// What dies with a node's start is removed when the node has been away for 30 s; its durable queues are not.
func TestClusterNodeIsGone(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	c := newCluster(t, 3)
	ch := c[2].open()
	must(ch.QueueDeclare("durable", true, false, false, false, nil))(t)
	must(ch.QueueDeclare("transient", false, false, false, false, nil))(t)
	must(ch.QueueDeclare("exclusive", false, false, true, false, nil))(t)
	ok(t, c[2].Kill())
	until(t, "n3 is not up", func() bool { return len(c[0].cluster().Running) == 2 })
	if names := c[0].queues(); !slices.Equal(names, []string{"durable", "exclusive", "transient"}) {
		t.Errorf("before it is gone: %v", names)
	}
	untilIn(t, 2*time.Minute, "what died is gone", func() bool { return slices.Equal(c[0].queues(), []string{"durable"}) })
	c[0].said("a node is gone")
	must(c[1].open().QueueDeclare("transient", true, false, false, false, nil))(t)
	ok(t, c[2].Start())
	c[0].known("n1", "n2", "n3")
	must(c[0].open().QueueDeclarePassive("durable", true, false, false, false, nil))(t)
}

// A leader of the catalog that is stopped in an orderly way hands it over: no declare on the others fails.
func TestClusterLeaderOfTheCatalogStops(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for round := range 2 {
		lead := -1
		until(t, "the catalog has a leader", func() bool {
			for _, n := range c[0].cluster().Nodes {
				if n.Leader && n.State == "up" {
					lead = int(n.Name[1] - '1')
				}
			}
			return lead >= 0
		})
		stopped, done := make(chan struct{}), make(chan error, 2)
		var begun sync.WaitGroup
		for i, m := range c {
			if i == lead {
				continue
			}
			ch := m.open()
			begun.Add(1)
			go func() {
				longest := time.Duration(0)
				for k := 0; ; k++ {
					began := time.Now()
					if _, err := ch.QueueDeclare(fmt.Sprintf("q%d-%d-%d", round, i, k), true, false, false, false, nil); err != nil {
						done <- fmt.Errorf("declare %d on %s: %w", k, m.name, err)
						return
					}
					longest = max(longest, time.Since(began))
					if k == 10 {
						begun.Done()
					}
					select {
					case <-stopped:
						if k > 20 {
							t.Logf("%s: %d declares, the longest took %v", m.name, k, longest)
							done <- nil
							return
						}
					default:
					}
				}
			}()
		}
		begun.Wait()
		ok(t, c[lead].Stop())
		close(stopped)
		if err := errors.Join(<-done, <-done); err != nil {
			t.Fatal(err)
		}
		ok(t, c[lead].Start())
		for _, m := range c {
			m.known("n1", "n2", "n3")
		}
	}
}

// A data folder that is put back from a copy has forgotten what its node has answered for. Such a node ends and says so; what
// was confirmed is with the others.
func TestClusterFolderFromACopy(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	var victim, other *member
	until(t, "the catalog has a leader", func() bool {
		lead := ""
		for _, n := range c[0].cluster().Nodes {
			if n.Leader {
				lead = n.Name
			}
		}
		for _, m := range c {
			if m.name == lead {
				other = m
			} else {
				victim = m
			}
		}
		return lead != ""
	})
	ok(t, victim.Stop())
	copied := filepath.Join(t.TempDir(), "copy")
	ok(t, os.CopyFS(copied, os.DirFS(victim.Data)))
	ok(t, victim.Start())
	ch := other.open()
	ok(t, ch.Confirm(false))
	for i := range 20 {
		q := fmt.Sprint("q", i)
		must(ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}))(t)
		confirmed(t, ch, "", q, q)
	}
	ok(t, victim.Kill())
	ok(t, os.RemoveAll(victim.Data))
	ok(t, os.CopyFS(victim.Data, os.DirFS(copied)))
	victim.ends("older than what was answered for")
	for i := range 20 {
		q := fmt.Sprint("q", i)
		if d := get(t, ch, q, true); string(d.Body) != q {
			t.Errorf("queue %s has %q", q, d.Body)
		}
	}
}
