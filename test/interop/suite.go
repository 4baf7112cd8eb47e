package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdfast/test/rig"
)

// outcome is how one test ended.
type outcome int

const (
	fail outcome = iota
	pass
	skip // by the suite itself
)

type result struct {
	outcome outcome
	why     string
}

// suite is one set of tests of others, or one session of ours.
type suite struct {
	name     string
	packages []string // of the system
	prepare  func(dir string) error
	run      func(dir string, b *broker, without map[string]string) (map[string]result, error)
	cluster  func(dir, binary string) (map[string]result, error) // instead of run: it starts three nodes itself
}

// limit bounds each suite.
const limit = 8 * time.Minute

var suites = []suite{
	goSuite("amqp091-go", "github.com/rabbitmq/amqp091-go", "v1.16.0"),
	goSuite("streadway-amqp", "github.com/streadway/amqp", "v1.1.0"),
	mochaSuite("amqplib", "amqplib", "0.8.0"),
	session("pika", []string{"python3-pika"}, "/usr/bin/python3", "pika_session.py", true),
	session("aio-pika", []string{"python3-aio-pika"}, "/usr/bin/python3", "aio_pika_session.py", true),
	session("kombu", []string{"python3-kombu"}, "/usr/bin/python3", "kombu_session.py", true),
	session("celery", []string{"python3-celery"}, "/usr/bin/python3", "celery_session.py", true),
	session("php-amqplib", []string{"php-cli", "php-amqplib"}, "php", "amqplib_session.php", true),
	session("bunny", []string{"ruby", "ruby-bunny"}, "ruby", "bunny_session.rb", false),
	session("amqp-tools", []string{"amqp-tools"}, "bash", "amqp_tools_session.sh", false),
	javaSession("java", javaPackages, "Session"),
}

// choose picks suites of a list by name; all if none is named.
func choose(suites []suite, only string) ([]suite, error) {
	if only == "" {
		return suites, nil
	}
	var chosen []suite
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(suites, func(s suite) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no suite %q", name)
		}
		chosen = append(chosen, suites[i])
	}
	return chosen, nil
}

// install brings the system's packages that are missing.
func install(chosen []suite) error {
	var packages []string
	for _, s := range chosen {
		packages = append(packages, s.packages...)
	}
	// A machine may have a Java or Node that no package brought.
	missing := slices.DeleteFunc(rig.Missing(packages...), func(p string) bool {
		_, err := exec.LookPath("javac")
		return p == "default-jdk-headless" && err == nil
	})
	return rig.Install(missing...)
}

// command runs a command with a bound, its output in a file of the suite's
// folder, and gives what it printed to standard output.
func command(dir, in string, env []string, name string, args ...string) ([]byte, error) {
	log, err := os.OpenFile(filepath.Join(dir, "output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	var out bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = in, append(os.Environ(), env...), &out, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it starts ends with it
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	timer := time.AfterFunc(limit, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer timer.Stop()
	err = cmd.Wait()
	_, _ = log.Write(out.Bytes())
	return out.Bytes(), err
}

// goSuite is the integration tests that come with a Go module, copied from the
// module cache.
func goSuite(name, module, version string) suite {
	return suite{
		name: name,
		prepare: func(dir string) error {
			out, err := command(dir, dir, []string{"GOFLAGS=-mod=mod"}, "go", "mod", "download", "-json", module+"@"+version)
			if err != nil {
				return fmt.Errorf("downloading %s: %w", module, err)
			}
			var got struct{ Dir string }
			if err := json.Unmarshal(out, &got); err != nil {
				return err
			}
			src := filepath.Join(dir, "src")
			if err := os.CopyFS(src, os.DirFS(got.Dir)); err != nil {
				return err
			}
			return nil
		},
		run: func(dir string, b *broker, without map[string]string) (map[string]result, error) {
			src := filepath.Join(dir, "src")
			closeStandIn, err := managementStandIn(src, b)
			if err != nil {
				return nil, err
			}
			defer closeStandIn()
			test := func(args ...string) (map[string]result, error) {
				args = append([]string{"test", "-json", "-count=1", "-tags", "integration", "-timeout", (limit - time.Minute).String()}, args...)
				// What fails is counted; the command's own verdict says nothing more.
				out, err := command(dir, src, []string{"AMQP_URL=" + b.url(true)}, "go", append(args, ".")...)
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					return nil, err
				}
				return goResults(out), nil
			}
			var skip []string
			if len(without) > 0 {
				skip = []string{"-skip", exactly(slices.Sorted(maps.Keys(without)))}
			}
			results, err := test(skip...)
			if err != nil {
				return nil, err
			}
			return again(name, results, test)
		},
	}
}

// exactly is the pattern of these tests alone.
func exactly(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }

// again gives the few tests that failed a second try, alone: some of both
// suites race against a server of their own on a busy machine, and fail on any
// broker then. What passes at the second try is named.
func again(suite string, results map[string]result, test func(args ...string) (map[string]result, error)) (map[string]result, error) {
	const few = 3
	var failed []string
	for _, name := range slices.Sorted(maps.Keys(results)) {
		if top, _, sub := strings.Cut(name, "/"); results[name].outcome == fail && !sub {
			failed = append(failed, top)
		}
	}
	if len(failed) == 0 || len(failed) > few {
		return results, nil
	}
	second, err := test("-run", exactly(failed))
	if err != nil {
		return nil, err
	}
	for name, r := range second {
		if results[name].outcome == fail && r.outcome == pass {
			fmt.Printf("%s: %s passed at the second try; at the first: %s\n", suite, name, results[name].why)
		}
		results[name] = r
	}
	return results, nil
}

// goResults reads what go test -json prints. A test that began and never ended
// has failed.
func goResults(out []byte) map[string]result {
	results, output := map[string]result{}, map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Test == "" {
			continue
		}
		switch e.Action {
		case "run":
			results[e.Test] = result{fail, "did not end"}
		case "output":
			output[e.Test] += e.Output
		case "pass":
			results[e.Test] = result{outcome: pass}
		case "skip":
			results[e.Test] = result{outcome: skip}
		case "fail":
			results[e.Test] = result{fail, lastLines(output[e.Test], 6)}
		}
	}
	return results
}

// lastLines is the end of a text, on one line.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], " / ")
}

// mochaSuite is the tests that come with a package of npm's.
func mochaSuite(name, module, version string) suite {
	return suite{
		name: name,
		prepare: func(dir string) error {
			if _, err := command(dir, dir, nil, "npm", "pack", "--silent", module+"@"+version); err != nil {
				return fmt.Errorf("npm pack: %w", err)
			}
			if _, err := command(dir, dir, nil, "tar", "xzf", module+"-"+version+".tgz"); err != nil {
				return err
			}
			src := filepath.Join(dir, "package")
			// The lock file names a mirror that is not there any more, and the
			// scripts would fetch what the package has in it already.
			if err := os.Remove(filepath.Join(src, "package-lock.json")); err != nil {
				return err
			}
			if _, err := command(dir, src, nil, "npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
				return fmt.Errorf("npm install: %w", err)
			}
			return nil
		},
		run: func(dir string, b *broker, _ map[string]string) (map[string]result, error) {
			src := filepath.Join(dir, "package")
			// Some tests take the library's default, which is a fixed port.
			_, port, err := net.SplitHostPort(b.addr)
			if err != nil {
				return nil, err
			}
			if err := replaceIn(filepath.Join(src, "lib", "connect.js"), "5672", port); err != nil {
				return nil, err
			}
			out, err := command(dir, src, []string{"URL=" + b.url(false)},
				filepath.Join(src, "node_modules", ".bin", "mocha"), "--check-leaks", "-u", "tdd", "--reporter", "json", "test")
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return nil, err
			}
			return mochaResults(out)
		},
	}
}

// replaceIn changes a text in a file.
func replaceIn(path, old, text string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed := strings.ReplaceAll(string(content), old, text)
	if err := os.Remove(path); err != nil { // it may be read-only
		return err
	}
	return os.WriteFile(path, []byte(changed), 0o644)
}

// mochaResults reads what mocha's json reporter prints. Names need not be
// unique; a number tells the later ones apart.
func mochaResults(out []byte) (map[string]result, error) {
	var report struct {
		Tests []struct {
			FullTitle string
			Err       struct{ Message, Stack string }
		}
		Pending []struct{ FullTitle string }
	}
	if at := bytes.IndexByte(out, '{'); at > 0 {
		out = out[at:]
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, fmt.Errorf("mocha's report: %w: %.300s", err, out)
	}
	pending := map[string]bool{}
	for _, p := range report.Pending {
		pending[p.FullTitle] = true
	}
	results := map[string]result{}
	for _, t := range report.Tests {
		name := t.FullTitle
		for n := 2; ; n++ {
			if _, taken := results[name]; !taken {
				break
			}
			name = fmt.Sprintf("%s (%d)", t.FullTitle, n)
		}
		switch {
		case pending[t.FullTitle]:
			results[name] = result{outcome: skip}
		case t.Err.Message != "" || t.Err.Stack != "":
			results[name] = result{fail, t.Err.Message}
		default:
			results[name] = result{outcome: pass}
		}
	}
	return results, nil
}

// session is a script of ours under sessions/.
func session(name string, packages []string, interpreter, script string, slash bool) suite {
	return suite{
		name: name, packages: packages,
		run: func(dir string, b *broker, _ map[string]string) (map[string]result, error) {
			return sessionResults(command(dir, dir, nil, interpreter, sessionFile(script), b.url(slash)))
		},
	}
}

var javaPackages = []string{"librabbitmq-client-java", "libslf4j-java", "default-jdk-headless"}

const javaJars = "/usr/share/java/amqp-client.jar:/usr/share/java/slf4j-api.jar:/usr/share/java/slf4j-nop.jar"

// compileJava gives the function that compiles a session.
func compileJava(class string) func(dir string) error {
	return func(dir string) error {
		if out, err := command(dir, dir, nil, "javac", "-nowarn", "-cp", javaJars, "-d", dir, sessionFile(class+".java")); err != nil {
			return fmt.Errorf("javac: %w\n%s", err, out)
		}
		return nil
	}
}

// javaSession is a session that is compiled first.
func javaSession(name string, packages []string, class string) suite {
	return suite{
		name: name, packages: packages, prepare: compileJava(class),
		run: func(dir string, b *broker, _ map[string]string) (map[string]result, error) {
			return sessionResults(command(dir, dir, nil, "java", "-cp", dir+":"+javaJars, class, b.url(false)))
		},
	}
}

// sessionResults reads the lines "ok NAME" and "not ok NAME: why". A session
// that ends otherwise than in order has failed as a whole.
func sessionResults(out []byte, err error) (map[string]result, error) {
	results := map[string]result{}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "ok "); is {
			results[name] = result{outcome: pass}
		} else if rest, is := strings.CutPrefix(line, "not ok "); is {
			name, why, _ := strings.Cut(rest, ": ")
			results[name] = result{fail, why}
		}
	}
	if err != nil {
		results["the session ends in order"] = result{fail, err.Error()}
	}
	return results, nil
}
