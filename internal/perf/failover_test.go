package perf

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Two brokers stand for two nodes: clients of one see nothing of what happens to
// the other, and what a node does not answer is counted.
func TestFailover(t *testing.T) {
	for _, signal := range []string{"KILL", "TERM", "STOP"} {
		victim := exec.Command("sleep", "60")
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		addr := echo(t, "")
		args := "failover -r 2000 -z 0.5 --fault-at 0.1 --fault-time 0.1 --signal " + signal + " -h " + addr + " --declare-uri " + echo(t, "") +
			" --victim-pid " + strconv.Itoa(victim.Process.Pid) + " --broker-pid " + strconv.Itoa(os.Getpid())
		r, err := measured(t, strings.Fields(args)...)
		if err != nil || r.Verdict != "ok" || r.Figures["publishes_failed"] != 0 || r.Figures["confirmed"] == 0 || r.Figures["producers_lost"] != 0 {
			t.Errorf("%s: %v %s %v %v", signal, err, r.Verdict, r.Figures, r.Errors)
		}
		var exit *exec.ExitError
		if signal == "STOP" { // it goes on, until it is killed
			_ = victim.Process.Kill()
		}
		if err := victim.Wait(); !errors.As(err, &exit) {
			t.Errorf("%s: the victim ended with %v", signal, err)
		}
	}
}

// The fault may be a command, as its end; both are told where the broker stands.
func TestFaultByCommand(t *testing.T) {
	dir := t.TempDir()
	r, err := measured(t, "failover", "-r", "500", "-z", "0.4", "--fault-at", "0.1", "--fault-time", "0.1", "-h", echo(t, ""),
		"--fault", "touch "+dir+"/struck", "--mend", "mv "+dir+"/struck "+dir+"/mended")
	rate, is := r.Figures["confirm_rate_end"] // how much it is in a twelfth of a second is the machine's affair
	if err != nil || r.Figures["confirmed"] <= 0 || !is || rate < 0 {
		t.Errorf("%v %v %v", err, r.Figures, r.Errors)
	}
	if _, err := os.Stat(dir + "/mended"); err != nil {
		t.Error(err)
	}
	r, err = measured(t, "failover", "-r", "500", "-z", "0.3", "--fault-at", "0.1", "-h", echo(t, ""), "--fault", "exit 3")
	if err == nil || len(r.Errors) == 0 {
		t.Errorf("the fault failed: %v %v", err, r.Errors)
	}
}

func TestFaultsThatMakeNoSense(t *testing.T) {
	addr := echo(t, "")
	for args, want := range map[string]string{
		"failover":                                       "--victim-pid",
		"failover --signal HUP --victim-pid 1":           "there are KILL",
		"failover --fault true -z 2 --fault-at 3":        "is over before",
		"failover --fault true --mend true -z 8":         "is over before",
		"takeover --signal HUP":                          "there are KILL",
		"failover --declare-uri ftp://x --victim-pid 10": "neither amqp://",
	} {
		if _, err := measured(t, append(strings.Fields(args), "-h", addr)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// Every queue answers after the fault.
func TestTakeover(t *testing.T) {
	r, err := measured(t, "takeover", "-n", "30", "--parallel", "4", "--fault", "true", "--fault-at", "0.05", "-h", echo(t, ""), "--declare-uri", echo(t, "")+","+echo(t, ""))
	if err != nil || r.Figures["all_s"] <= 0 || r.Figures["half_s"] > r.Figures["all_s"] || r.Figures["failed"] != 0 {
		t.Errorf("%v %v %v", err, r.Figures, r.Errors)
	}
}

// Gaps before a mark count before it, and one that lasts when the run ends counts after it.
func TestMark(t *testing.T) {
	l := newLedger(1)
	for range 4 {
		l.publish(0)
	}
	l.confirm(0, 0, 100)
	l.confirm(0, 1, 130)
	l.confirm(0, 2, 140)
	if confirm, delivery := l.mark(); confirm != 30 || delivery != 0 {
		t.Errorf("%d %d", confirm, delivery)
	}
	l.confirm(0, 3, 190)
	l.conclude(200)
	if confirm, _ := l.mark(); confirm != 50 {
		t.Errorf("%d", confirm)
	}
	l.conclude(300)
	if confirm, _ := l.mark(); confirm != 110 {
		t.Errorf("%d", confirm)
	}
}
