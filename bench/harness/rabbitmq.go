package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"holdfast/test/rig"
)

// rabbitStart bounds how long a node may take.
const rabbitStart = 90 * time.Second

// findRabbitMQ is the start script of the installed package, or of the folder
// that RABBITMQ_SBIN names.
func findRabbitMQ() (string, error) {
	if dir := os.Getenv("RABBITMQ_SBIN"); dir != "" {
		return filepath.Join(dir, "rabbitmq-server"), nil
	}
	found, _ := filepath.Glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
	if len(found) == 0 {
		return "", fmt.Errorf("RabbitMQ is not installed: make bench-rabbitmq")
	}
	return found[len(found)-1], nil
}

// rabbit is a node with everything of its own: name, ports, data, and the
// daemon that knows the names of Erlang nodes.
type rabbit struct {
	server, dir string
	port, dist  int
	env         []string
	node        *child
	names       *child // epmd
}

func startRabbitMQ(_ context.Context, server, dir string) (*instance, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"plugins": "[].\n", "env.conf": "", "rabbitmq.conf": "log.file.level = info\n", "advanced.config": "[].\n"} {
		if err := os.MkdirAll(filepath.Join(dir, "log"), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	r := &rabbit{server: server, dir: dir, port: ports[0], dist: ports[1]}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RABBITMQ_") && !strings.HasPrefix(v, "HOME=") && !strings.HasPrefix(v, "ERL_") {
			r.env = append(r.env, v)
		}
	}
	r.env = append(r.env,
		"HOME="+dir, "ERL_EPMD_ADDRESS=127.0.0.1", fmt.Sprintf("ERL_EPMD_PORT=%d", ports[2]),
		fmt.Sprintf("RABBITMQ_NODENAME=bench%d@localhost", r.port), "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		fmt.Sprintf("RABBITMQ_NODE_PORT=%d", r.port), fmt.Sprintf("RABBITMQ_DIST_PORT=%d", r.dist),
		"RABBITMQ_MNESIA_BASE="+at("data"), "RABBITMQ_LOG_BASE="+at("log"), "RABBITMQ_CONFIG_FILE="+at("rabbitmq.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+at("plugins"), "RABBITMQ_CONF_ENV_FILE="+at("env.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE="+at("advanced.config"),
		"RABBITMQ_ALLOW_INPUT=1", // the script becomes the node, so that the pid is the node's
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-noinput -kernel inet_dist_use_interface {127,0,0,1}",
	)
	epmd := exec.Command("epmd", "-address", "127.0.0.1", "-port", fmt.Sprint(ports[2]))
	epmd.Env = r.env
	if r.names, err = spawn(epmd); err != nil {
		return nil, fmt.Errorf("starting epmd: %w", err)
	}
	if err := r.launch(); err == nil {
		err = r.ready()
	}
	if err != nil {
		_ = r.stop()
		return nil, err
	}
	return &instance{
		url: "amqp://" + r.addr(), pids: []int{r.node.pid()}, data: dir, ended: r.node.done,
		relaunch: r.launch, stop: r.stop,
	}, nil
}

func (r *rabbit) addr() string { return fmt.Sprintf("127.0.0.1:%d", r.port) }

func (r *rabbit) launch() error {
	out, err := os.OpenFile(filepath.Join(r.dir, "out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(r.server)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = r.env, out, out, r.dir
	r.node, err = spawn(cmd)
	return err
}

// ready waits until the node serves and has said that its start is complete.
func (r *rabbit) ready() error {
	for end := time.Now().Add(rabbitStart); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		select {
		case <-r.node.done:
			return fmt.Errorf("RabbitMQ ended while starting\n%s", r.tail())
		default:
		}
		logs, _ := filepath.Glob(filepath.Join(r.dir, "log", "bench*.log"))
		for _, name := range logs {
			text, _ := os.ReadFile(name)
			if strings.Contains(string(text), "Server startup complete") && rig.Answers(r.addr()) {
				return nil
			}
		}
	}
	return fmt.Errorf("RabbitMQ does not answer after %v\n%s", rabbitStart, r.tail())
}

func (r *rabbit) tail() string {
	text, _ := os.ReadFile(filepath.Join(r.dir, "out"))
	return string(text[max(0, len(text)-4096):])
}

func (r *rabbit) stop() error {
	if r.node != nil {
		r.node.end(syscall.SIGKILL, 10*time.Second)
	}
	r.names.end(syscall.SIGTERM, 2*time.Second)
	return nil
}
