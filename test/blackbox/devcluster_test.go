package blackbox

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/rig"
)

// screen is what a command prints.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// devCluster is a run of "holdfast dev-cluster".
type devCluster struct {
	t      *testing.T
	cmd    *exec.Cmd
	screen *screen
	ended  chan struct{}
	urls   [3]string
	pids   [3]int
}

var nodeLine = regexp.MustCompile(`(?m)^  n([123])  (amqp://\S+) .* pid ([0-9]+) `)

// runDevCluster starts one and waits until it says that it runs.
func runDevCluster(t *testing.T, arguments ...string) *devCluster {
	t.Helper()
	d := &devCluster{t: t, cmd: rig.Command(target.binary, append([]string{"dev-cluster"}, arguments...)...), screen: &screen{}, ended: make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = d.screen, d.screen
	ok(t, d.cmd.Start())
	go func() { _ = d.cmd.Wait(); close(d.ended) }()
	t.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		<-d.ended
		if t.Failed() {
			t.Logf("it printed:\n%s", d.screen)
		}
	})
	var lines [][]string
	until(t, "the nodes run", func() bool {
		lines = nodeLine.FindAllStringSubmatch(d.screen.String(), -1)
		return len(lines) == 3
	})
	for i, l := range lines {
		d.urls[i] = l[2]
		d.pids[i] = must(strconv.Atoi(l[3]))(t)
	}
	return d
}

// stop ends it as ctrl-C does, and checks that all is gone.
func (d *devCluster) stop() {
	d.t.Helper()
	ok(d.t, d.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-d.ended:
	case <-time.After(time.Minute):
		d.t.Fatal("it does not end")
	}
	equal(d.t, "exit status", d.cmd.ProcessState.ExitCode(), 0)
	for i, pid := range d.pids {
		if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
			d.t.Errorf("node %d, pid %d, is still there: %v", i+1, pid, err)
		}
		address := strings.TrimPrefix(d.urls[i], "amqp://guest:guest@")
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			d.t.Errorf("somebody listens on %s", address)
		}
	}
}

// One command runs three nodes that are one broker: a queue of one is used on the others, one may be killed, SIGTERM ends
// all, and the same folder started again has what was in it.
func TestDevCluster(t *testing.T) {
	t.Parallel()
	if target.binary == "" {
		t.Skip("the broker is not ours to start")
	}
	base := must(rig.FreePorts(0, 1, 2, 10_000, 10_001, 10_002, 20_000, 20_001, 20_002))(t)
	folder := filepath.Join(t.TempDir(), "three")
	d := runDevCluster(t, "--data", folder, "--base-port", fmt.Sprint(base))

	var chans [3]*amqp.Channel
	for i, url := range d.urls {
		equal(t, "URL", url, fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d", base+i))
		chans[i] = channel(t, dialURL(t, url))
	}
	must(chans[0].QueueDeclare("tried", true, false, false, false, nil))(t)
	in := must(chans[1].Consume("tried", "", false, false, false, false, nil))(t)
	ok(t, chans[2].Confirm(false))
	confirm := func(ch *amqp.Channel, body string) {
		t.Helper()
		c := must(ch.PublishWithDeferredConfirm("", "tried", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)}))(t)
		if !c.Wait() {
			t.Fatalf("%q was nacked", body)
		}
	}
	confirm(chans[2], "from n3")
	got := next(t, in)
	equal(t, "body", string(got.Body), "from n3")
	ok(t, got.Ack(false))

	ok(t, syscall.Kill(d.pids[2], syscall.SIGKILL))
	until(t, "the end of n3 is told", func() bool {
		return strings.Contains(d.screen.String(), "n3 has ended: signal: killed; 2 of 3 nodes run")
	})
	must(chans[1].QueueDeclare("after", true, false, false, false, nil))(t)
	ok(t, chans[0].Confirm(false))
	confirm(chans[0], "from n1")
	equal(t, "body", string(next(t, in).Body), "from n1") // and not acknowledged
	d.stop()

	d = runDevCluster(t, "--data", folder)
	conn := dialURL(t, d.urls[2])
	must(channel(t, conn).QueueDeclarePassive("after", true, false, false, false, nil))(t)
	var again amqp.Delivery
	there := false
	until(t, "n3 reaches the queue on n1", func() (reached bool) {
		var err error
		again, there, err = channel(t, conn).Get("tried", true)
		return err == nil
	})
	if !there || string(again.Body) != "from n1" || !again.Redelivered {
		t.Errorf("after a second start: %v, %q, redelivered %v", there, again.Body, again.Redelivered)
	}
	d.stop()
}
