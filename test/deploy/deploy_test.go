package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v2"

	"holdfast/test/rig"
)

func at(name string) string { return filepath.Join(rig.Root(), "deploy", name) }

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(at(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// object is a manifest, or a part of one.
type object map[string]any

// manifests parses a file strictly: a key that stands twice is an error.
func manifests(t *testing.T, name string) (list []object) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(read(t, name)))
	d.SetStrict(true)
	for {
		var m map[string]any
		err := d.Decode(&m)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		list = append(list, m)
	}
}

// get follows keys, and places in lists; what is not there is nil.
func get(from any, path ...any) any {
	for _, step := range path {
		switch at := step.(type) {
		case string:
			switch m := from.(type) {
			case object:
				from = m[at]
			case map[string]any:
				from = m[at]
			case map[any]any:
				from = m[at]
			default:
				return nil
			}
		case int:
			list, _ := from.([]any)
			if at >= len(list) {
				return nil
			}
			from = list[at]
		}
	}
	return from
}

func text(from any, path ...any) string { return fmt.Sprint(get(from, path...)) }

func list(from any, path ...any) []any { l, _ := get(from, path...).([]any); return l }

// texts are the values of a field in a list.
func texts(l []any, path ...any) (out []string) {
	for _, item := range l {
		out = append(out, text(item, path...))
	}
	return out
}

var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "holdfast-deploy-")
	if err != nil {
		return "", err
	}
	return rig.Binary(dir)
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := binary(); err == nil && strings.Contains(path, "holdfast-deploy-") {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// settings asks the binary for the settings that a command line of serve would put in force.
func settings(t *testing.T, serve []string) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if len(serve) == 0 || serve[0] != "serve" {
		t.Fatalf("%q does not run a node", serve)
	}
	var problems bytes.Buffer
	cmd := exec.Command(path, append([]string{"config"}, serve[1:]...)...)
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil || problems.Len() > 0 {
		t.Fatalf("%q: %v\n%s", serve, err, problems.String())
	}
	return string(out)
}

// inForce reports whether a setting is.
func inForce(settings, key, value string) bool {
	for line := range strings.Lines(settings) {
		line, _, _ = strings.Cut(line, "   # default:")
		if strings.TrimSpace(line) == key+" = "+value {
			return true
		}
	}
	return false
}

// Everything of Kubernetes' that is applied is there, and nothing else.
func TestKustomization(t *testing.T) {
	var named []string
	for _, name := range list(manifests(t, "kubernetes/kustomization.yaml")[0], "resources") {
		named = append(named, fmt.Sprint(name))
	}
	files, err := filepath.Glob(at("kubernetes/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if name != "kustomization.yaml" && name != "secret.example.yaml" && !slices.Contains(named, name) {
			t.Errorf("%s is not applied", name)
		}
	}
	var kinds []string
	for _, name := range named {
		for _, m := range manifests(t, "kubernetes/"+name) {
			kinds = append(kinds, text(m, "apiVersion")+" "+text(m, "kind")+" "+text(m, "metadata", "name"))
		}
	}
	slices.Sort(kinds)
	want := []string{
		"apps/v1 StatefulSet holdfast", "policy/v1 PodDisruptionBudget holdfast", "v1 Service holdfast", "v1 Service holdfast-nodes",
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("applied are %q", kinds)
	}
}

// The parts refer to each other by the names they have.
func TestManifestsFitTogether(t *testing.T) {
	set := manifests(t, "kubernetes/statefulset.yaml")[0]
	secret := manifests(t, "kubernetes/secret.example.yaml")[0]
	services := manifests(t, "kubernetes/service.yaml")
	budget := manifests(t, "kubernetes/disruption.yaml")[0]
	pod := get(set, "spec", "template")
	container := get(pod, "spec", "containers", 0)

	labels := text(pod, "metadata", "labels")
	for what, selector := range map[string]string{
		"the set": text(set, "spec", "selector", "matchLabels"), "the budget": text(budget, "spec", "selector", "matchLabels"),
		"the nodes' service": text(services[0], "spec", "selector"), "the clients' service": text(services[1], "spec", "selector"),
		"what keeps nodes apart": text(pod, "spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution", 0, "labelSelector", "matchLabels"),
		"what spreads them":      text(pod, "spec", "topologySpreadConstraints", 0, "labelSelector", "matchLabels"),
	} {
		if selector != labels {
			t.Errorf("%s selects %s, the pods are %s", what, selector, labels)
		}
	}
	if text(set, "spec", "replicas") != "3" || text(set, "spec", "podManagementPolicy") != "Parallel" {
		t.Error("three nodes have to find each other at the same time")
	}
	if text(set, "spec", "serviceName") != text(services[0], "metadata", "name") ||
		text(services[0], "spec", "clusterIP") != "None" || text(services[0], "spec", "publishNotReadyAddresses") != "true" {
		t.Error("nodes have no names before they are ready")
	}
	if text(budget, "spec", "maxUnavailable") != "1" {
		t.Error("a majority may be taken away")
	}
	if text(pod, "spec", "securityContext", "runAsNonRoot") != "true" || text(container, "securityContext", "readOnlyRootFilesystem") != "true" {
		t.Error("the container may do more than it needs")
	}

	ports := texts(list(container, "ports"), "name")
	for _, s := range services {
		for _, p := range list(s, "spec", "ports") {
			if !slices.Contains(ports, text(p, "targetPort")) {
				t.Errorf("service %s: the container has no port %s", text(s, "metadata", "name"), text(p, "targetPort"))
			}
		}
	}
	if !slices.Contains(ports, text(container, "readinessProbe", "tcpSocket", "port")) {
		t.Error("readiness is asked of a port that the container has not")
	}
	volumes := append(texts(list(pod, "spec", "volumes"), "name"), texts(list(set, "spec", "volumeClaimTemplates"), "metadata", "name")...)
	mounted := texts(list(container, "volumeMounts"), "name")
	slices.Sort(volumes)
	slices.Sort(mounted)
	if !slices.Equal(volumes, mounted) {
		t.Errorf("volumes %q, mounted are %q", volumes, mounted)
	}
	if text(pod, "spec", "volumes", 0, "secret", "secretName") != text(secret, "metadata", "name") {
		t.Error("the secret has another name")
	}
}

var reference = regexp.MustCompile(`\$\(([A-Z_]+)\)`)

// Each node's command line, with the secret's files, is one that the binary takes, and means what it has to.
func TestManifestsAreTakenByTheBinary(t *testing.T) {
	set := manifests(t, "kubernetes/statefulset.yaml")[0]
	secret := manifests(t, "kubernetes/secret.example.yaml")[0]
	container := get(set, "spec", "template", "spec", "containers", 0)
	folder := t.TempDir()
	files := get(secret, "stringData").(map[any]any)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprint(name)), fmt.Append(nil, content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mount := text(container, "volumeMounts", 1, "mountPath")
	env := texts(list(container, "env"), "name")
	var all []string
	for i := range 3 {
		values := map[string]string{"POD_NAME": fmt.Sprint("holdfast-", i), "POD_NAMESPACE": "messages"}
		var serve []string
		for _, a := range list(container, "args") {
			arg := reference.ReplaceAllStringFunc(fmt.Sprint(a), func(ref string) string {
				name := reference.FindStringSubmatch(ref)[1]
				if !slices.Contains(env, name) {
					t.Errorf("%s is not set", name)
				}
				return values[name]
			})
			serve = append(serve, strings.Replace(arg, mount+"/", folder+"/", 1))
		}
		have := settings(t, serve)
		address := fmt.Sprintf("holdfast-%d.holdfast-nodes.messages.svc.cluster.local:25672", i)
		all = append(all, address)
		for key, value := range map[string]string{
			"cluster.listen": ":25672", "node_name": fmt.Sprint("holdfast-", i), "cluster.address": address,
			"data_dir": text(container, "volumeMounts", 0, "mountPath") + "/data",
		} {
			if !inForce(have, key, value) {
				t.Errorf("node %d: %s is not %q:\n%s", i, key, value, have)
			}
		}
		if i == 2 {
			for k, address := range all {
				if !inForce(have, fmt.Sprintf("cluster.join.%d", k+1), address) {
					t.Errorf("%s is not asked:\n%s", address, have)
				}
			}
		}
	}
	open(t, filepath.Join(folder, "holdfast.conf"))
	probe := fmt.Sprint(get(container, "livenessProbe", "exec", "command"))
	if probe != "[/holdfast ctl --data /var/lib/holdfast/data ping]" {
		t.Errorf("the probe asks %s", probe)
	}
}

// open checks a configuration file by which clients from elsewhere are served, and returns what it puts in force.
func open(t *testing.T, name string) string {
	t.Helper()
	have := settings(t, []string{"serve", "--config", name})
	if !inForce(have, "default_user", "admin") || inForce(have, "loopback_users.admin", "true") {
		t.Errorf("%s: nobody can log in from elsewhere:\n%s", name, have)
	}
	if !inForce(have, "listeners.tcp.1", "5672") || !inForce(have, "management.tcp.port", "15672") {
		t.Errorf("%s: listens elsewhere:\n%s", name, have)
	}
	return have
}

// The unit runs what the binary takes, with a configuration that can be used, also with its cluster switched on.
func TestUnit(t *testing.T) {
	unit := read(t, "systemd/holdfast.service")
	const installed = "/usr/local/bin/holdfast"
	command := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(unit)
	if command == nil {
		t.Fatal("nothing is started")
	}
	file := at("systemd/holdfast.conf")
	arguments := strings.Fields(strings.ReplaceAll(command[1], "/etc/holdfast/holdfast.conf", file))
	if arguments[0] != installed {
		t.Fatalf("starts %s", arguments[0])
	}
	if have := settings(t, arguments[1:]); !inForce(have, "data_dir", "/var/lib/holdfast/data") || !strings.Contains(unit, "\nStateDirectory=holdfast\n") {
		t.Errorf("the data is not where the unit lets it be:\n%s", have)
	}
	open(t, file)
	cluster := regexp.MustCompile(`(?m)^# ([a-z_.0-9]+ = )`).ReplaceAllString(read(t, "systemd/holdfast.conf"), "$1")
	cluster = regexp.MustCompile(`(?m)^(listeners\.ssl|ssl_options).*\n`).ReplaceAllString(cluster, "")
	whole := filepath.Join(t.TempDir(), "holdfast.conf")
	if err := os.WriteFile(whole, []byte(cluster), 0o600); err != nil {
		t.Fatal(err)
	}
	have := open(t, whole)
	for key, value := range map[string]string{
		"node_name": "broker1", "cluster.address": "broker1.example.org:25672", "cluster.join.1": "broker1.example.org:25672",
		"cluster.join.3": "broker3.example.org:25672",
	} {
		if !inForce(have, key, value) {
			t.Errorf("the cluster of the example: %s is not %s\n%s", key, value, have)
		}
	}
	if !strings.Contains(have, "# cluster.secret is set") {
		t.Errorf("the cluster of the example has no secret:\n%s", have)
	}

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here")
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "holdfast.service")
	if err := os.WriteFile(copied, []byte(strings.ReplaceAll(unit, installed, path)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", copied).CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}

// The image runs what the binary takes, as nobody, with its data where the volume is.
func TestImage(t *testing.T) {
	var serve []string
	volume, user := "", ""
	for line := range strings.Lines(read(t, "docker/Dockerfile")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "CMD":
			var words []string
			if err := yaml.Unmarshal([]byte(rest), &words); err != nil {
				t.Fatal(err)
			}
			serve = words
		case "VOLUME":
			volume = rest
		case "USER":
			user = rest
		case "HEALTHCHECK":
			if !strings.HasSuffix(rest, `CMD ["/holdfast", "ctl", "--data", "/var/lib/holdfast/data", "ping"]`) {
				t.Errorf("health: %s", rest)
			}
		}
	}
	if have := settings(t, serve); !inForce(have, "data_dir", volume+"/data") {
		t.Errorf("the data is not on the volume %s:\n%s", volume, have)
	}
	if user != "65532:65532" {
		t.Errorf("runs as %s", user)
	}
}
