package harness

import (
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

// rabbit is a node with everything of its own: name, ports, data.
type rabbit struct {
	server, dir string
	name        string
	port        int
	env         []string
	node        *child
}

// startRabbitMQ starts nodes that share a daemon that knows the names of Erlang
// nodes, of their own.
func startRabbitMQ(server, dir string, nodes int) (*instance, error) {
	ports, err := freePorts(2*nodes + 1)
	if err != nil {
		return nil, err
	}
	names, all := ports[2*nodes], []*rabbit{}
	config := "log.file.level = info\n"
	if nodes > 1 {
		config += "cluster_formation.peer_discovery_backend = classic_config\n"
		for n := range nodes {
			config += fmt.Sprintf("cluster_formation.classic_config.nodes.%d = %s\n", n+1, rabbitName(ports[2*n]))
		}
	}
	for n := range nodes {
		r, err := newRabbit(server, dir, filepath.Join(dir, fmt.Sprint("node", n+1)), ports[2*n], ports[2*n+1], names, config)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	first := all[0]
	epmd := exec.Command("epmd", "-address", "127.0.0.1", "-port", fmt.Sprint(names))
	epmd.Env = first.env
	daemon, err := spawn(epmd)
	if err != nil {
		return nil, fmt.Errorf("starting epmd: %w", err)
	}
	i := &instance{data: dir, relaunch: first.launch, ctl: first.ctl}
	i.stop = func() error {
		for _, r := range all {
			if r.node != nil {
				r.node.end(syscall.SIGKILL, 10*time.Second)
			}
		}
		daemon.end(syscall.SIGTERM, 2*time.Second)
		return nil
	}
	for _, r := range all { // the first founds the cluster, the others join
		if err = r.launch(); err == nil {
			err = r.ready()
		}
		if err != nil {
			_ = i.stop()
			return nil, err
		}
		i.urls, i.names, i.pids = append(i.urls, "amqp://"+r.addr()), append(i.names, r.name), append(i.pids, r.node.pid())
	}
	i.ended = first.node.done
	return i, nil
}

func rabbitName(port int) string { return fmt.Sprintf("bench%d@localhost", port) }

// newRabbit prepares a node. home is shared by the nodes of a cluster: the
// secret that they know each other by lies there.
func newRabbit(server, home, dir string, port, dist, names int, config string) (*rabbit, error) {
	if err := os.MkdirAll(filepath.Join(dir, "log"), 0o755); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"plugins": "[].\n", "env.conf": "", "rabbitmq.conf": config, "advanced.config": "[].\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	r := &rabbit{server: server, dir: dir, name: rabbitName(port), port: port}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "RABBITMQ_") && !strings.HasPrefix(v, "HOME=") && !strings.HasPrefix(v, "ERL_") {
			r.env = append(r.env, v)
		}
	}
	r.env = append(r.env,
		"HOME="+home, "ERL_EPMD_ADDRESS=127.0.0.1", fmt.Sprintf("ERL_EPMD_PORT=%d", names),
		"RABBITMQ_NODENAME="+r.name, "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		fmt.Sprintf("RABBITMQ_NODE_PORT=%d", port), fmt.Sprintf("RABBITMQ_DIST_PORT=%d", dist),
		"RABBITMQ_MNESIA_BASE="+at("data"), "RABBITMQ_LOG_BASE="+at("log"), "RABBITMQ_CONFIG_FILE="+at("rabbitmq.conf"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+at("plugins"), "RABBITMQ_CONF_ENV_FILE="+at("env.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE="+at("advanced.config"),
		"RABBITMQ_ALLOW_INPUT=1", // the script becomes the node, so that the pid is the node's
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-noinput -kernel inet_dist_use_interface {127,0,0,1}",
	)
	return r, nil
}

func (r *rabbit) addr() string { return fmt.Sprintf("127.0.0.1:%d", r.port) }

// ctl runs rabbitmqctl.
func (r *rabbit) ctl(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(filepath.Dir(r.server), "rabbitmqctl"), args...)
	cmd.Env, cmd.Dir = r.env, r.dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("rabbitmqctl %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

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
