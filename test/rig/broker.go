package rig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// ReadyWait bounds how long a start may take.
const ReadyWait = 2 * time.Minute

// Broker is one broker on loopback with a data folder of its own. Its methods
// are for one goroutine.
type Broker struct {
	Binary string
	Data   string   // survives Kill and Stop
	Addr   string   // AMQP
	HTTP   string   // health and metrics
	Log    string   // file with what it prints
	Extra  []string // more arguments of serve
	// Through is a command that runs what stands behind it in its own place, such as MemoryGroup.Through.
	Through []string

	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // its exit, once done is closed
}

// New prepares a broker under dir; Start runs it.
func New(binary, dir string, extra ...string) (*Broker, error) {
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	http, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return &Broker{
		Binary: binary, Data: filepath.Join(dir, "data"), Addr: addr, HTTP: http,
		Log: filepath.Join(dir, "log"), Extra: extra,
	}, nil
}

// ports are those given out by this process, each with the UDP socket that
// keeps it: no other process that asks FreeAddr is given the same one, also
// while the broker is down.
var ports sync.Map

// FreeAddr is an address of loopback nobody listens on, for a listener that
// cannot choose its port itself. Its port is below those that the
// system gives to outgoing connections: one of these could otherwise take it
// while the broker is down.
func FreeAddr() (string, error) {
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))
		kept, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			kept.Close()
			continue
		}
		ports.Store(addr, kept)
		return addr, l.Close()
	}
	return "", errors.New("no free port on loopback")
}

// FreePorts is a port from which the ports this far above it are free, too; all are kept as FreeAddr keeps one. It leaves
// room for 20,000 more below the ports of outgoing connections.
func FreePorts(above ...int) (base int, err error) {
	for range 1000 {
		base := 2_000 + rand.IntN(9_000)
		var kept []net.PacketConn
		for _, n := range above {
			addr := fmt.Sprintf("127.0.0.1:%d", base+n)
			udp, err := net.ListenPacket("udp", addr)
			if err != nil {
				break
			}
			kept = append(kept, udp)
			l, err := net.Listen("tcp", addr)
			if err != nil {
				break
			}
			l.Close()
			if len(kept) == len(above) {
				for i, udp := range kept {
					ports.Store(fmt.Sprintf("127.0.0.1:%d", base+above[i]), udp)
				}
				return base, nil
			}
		}
		for _, udp := range kept {
			udp.Close()
		}
	}
	return 0, errors.New("no free ports on loopback")
}

// Command prepares a process that ends when this one is killed.
func Command(program string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(program, arguments...)
	cmd.SysProcAttr = dieWithParent()
	return cmd
}

// URL is where clients connect, as guest to vhost "/".
func (b *Broker) URL() string { return "amqp://guest:guest@" + b.Addr + "/" }

// Pid is the running process, 0 if there is none.
func (b *Broker) Pid() int {
	if b.cmd == nil || b.cmd.Process == nil {
		return 0
	}
	return b.cmd.Process.Pid
}

// Launch starts the process and does not wait until it serves.
func (b *Broker) Launch() error {
	log, err := os.OpenFile(b.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{"serve", "--data", b.Data, "--listen", b.Addr, "--http", b.HTTP}, b.Extra...)
	line := append(append(slices.Clone(b.Through), b.Binary), args...)
	b.cmd = exec.Command(line[0], line[1:]...)
	b.cmd.Stdout, b.cmd.Stderr = log, log
	b.cmd.SysProcAttr = dieWithParent()
	if err := b.cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	b.done = done
	go func(c *exec.Cmd) { b.err = c.Wait(); close(done) }(b.cmd)
	return nil
}

// Start launches the process and waits until it answers the AMQP header.
func (b *Broker) Start() error {
	if err := b.Launch(); err != nil {
		return err
	}
	return b.Ready()
}

// Ready waits until the broker answers.
func (b *Broker) Ready() error {
	for end := time.Now().Add(ReadyWait); ; time.Sleep(5 * time.Millisecond) {
		if Answers(b.Addr) {
			return nil
		}
		select {
		case <-b.done:
			return fmt.Errorf("the broker ended while starting: %v\n%s", b.err, b.Tail())
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("the broker does not answer after %v\n%s", ReadyWait, b.Tail())
		}
	}
}

// Answers says whether an AMQP server greets at this address.
func Answers(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return false
	}
	var one [1]byte
	n, _ := c.Read(one[:])
	return n == 1 && one[0] == 1
}

// Kill ends the process with SIGKILL and waits for its end.
func (b *Broker) Kill() error { return b.end(syscall.SIGKILL, time.Minute) }

// Stop ends the process with SIGTERM; ending otherwise than with status 0, or
// not within two minutes, is an error (and then it is killed).
func (b *Broker) Stop() error {
	if err := b.end(syscall.SIGTERM, 2*time.Minute); err != nil {
		return err
	}
	if b.err != nil {
		return fmt.Errorf("the broker stopped with %w\n%s", b.err, b.Tail())
	}
	return nil
}

func (b *Broker) end(signal syscall.Signal, wait time.Duration) error {
	if b.cmd == nil {
		return nil
	}
	if err := b.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-b.done:
		b.cmd = nil
		return nil
	case <-time.After(wait):
		_ = b.cmd.Process.Kill()
		<-b.done
		b.cmd = nil
		return fmt.Errorf("the broker was still there %v after %v\n%s", wait, signal, b.Tail())
	}
}

// Ended is closed once the process has ended.
func (b *Broker) Ended() <-chan struct{} { return b.done }

// Ctl runs one command of holdfast ctl against the broker.
func (b *Broker) Ctl(args ...string) (string, error) {
	cmd := exec.Command(b.Binary, append([]string{"ctl", "--data", b.Data}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("ctl %v: %w: %s%s", args, err, out.String(), errs.String())
	}
	return out.String(), nil
}

// Tail is the end of what the broker printed.
func (b *Broker) Tail() string {
	f, err := os.Open(b.Log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const most = 8 << 10
	if st, err := f.Stat(); err == nil && st.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	out, _ := io.ReadAll(f)
	return string(out)
}
