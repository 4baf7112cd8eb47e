package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// story runs lines of time, event and node against a Detector and writes what it says.
func story(t *testing.T, text string) string {
	t.Helper()
	d := NewDetector()
	var said strings.Builder
	now := int64(0)
	tell := func(list []Change) {
		for _, c := range list {
			fmt.Fprintf(&said, "%v: node %d %v to %v", time.Duration(now), c.Node, c.Was, c.Is)
			if c.Restarted {
				said.WriteString(" restarted")
			}
			fmt.Fprintf(&said, " %d %s\n", c.Incarnation, c.Why)
		}
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		at, err := time.ParseDuration(f[0])
		if err != nil {
			t.Fatal(err)
		}
		stall := f[1] == "stall"
		for ; !stall && now < int64(at); now = min(now+int64(TickEvery), int64(at)) {
			tell(d.Tick(now))
		}
		now = int64(at)
		var node, n uint64
		if len(f) > 2 {
			fmt.Sscan(f[2], &node)
		}
		if len(f) > 3 {
			fmt.Sscan(f[3], &n)
		}
		switch f[1] {
		case "watch":
			var ids []uint64
			for _, s := range f[2:] {
				var id uint64
				fmt.Sscan(s, &id)
				ids = append(ids, id)
			}
			d.Watch(now, ids)
		case "up":
			tell(d.Up(now, node, n))
		case "down":
			tell(d.Down(now, node, errors.New("reset"), false))
		case "goodbye":
			tell(d.Down(now, node, errors.New("bye"), true))
		case "suspect":
			tell(d.Suspect(now, node))
		case "trust":
			tell(d.Trust(now, node))
		case "heard":
			tell(d.Heard(now, node, n))
		case "tick", "stall":
			tell(d.Tick(now))
		default:
			t.Fatal(line)
		}
	}
	return strings.TrimSpace(said.String())
}

func TestDetector(t *testing.T) {
	for _, c := range []struct{ name, story, want string }{
		{"a node that never came", `
			0s watch 2
			35s tick`, `
30s: node 2 suspect to gone 0 has not been reached yet`},
		{"up for ever", `
			0s watch 2
			1s up 2 7
			100s tick`, `
1s: node 2 suspect to up 7`},
		{"killed, gone, and back as another start", `
			0s watch 2
			1s up 2 7
			2s down 2
			40s up 2 8`, `
1s: node 2 suspect to up 7
2.8s: node 2 up to suspect 7 lost its link: reset
32s: node 2 suspect to gone 7 lost its link: reset
40s: node 2 gone to up restarted 8`},
		{"a link that comes back at once", `
			0s watch 2
			1s up 2 7
			2s down 2
			2.5s up 2 7
			10s tick`, `
1s: node 2 suspect to up 7`},
		{"a process that was started anew within the time", `
			0s watch 2
			1s up 2 7
			2s down 2
			2.3s up 2 8`, `
1s: node 2 suspect to up 7
2.3s: node 2 up to up restarted 8`},
		{"a goodbye", `
			0s watch 2
			1s up 2 7
			2s goodbye 2
			3s tick`, `
1s: node 2 suspect to up 7
2s: node 2 up to suspect 7 said goodbye`},
		{"no beats over a link that stands", `
			0s watch 2
			1s up 2 7
			5s suspect 2
			6s trust 2
			7s suspect 2
			40s tick`, `
1s: node 2 suspect to up 7
5s: node 2 up to suspect 7 its heartbeats do not come
6s: node 2 suspect to up 7
7s: node 2 up to suspect 7 its heartbeats do not come
36.2s: node 2 suspect to gone 7 its heartbeats do not come`},
		{"heard through another node", `
			0s watch 2 3
			1s up 2 7
			1s up 3 9
			2s down 2
			2.5s heard 2 3
			3s heard 2 3
			3.6s heard 2 3
			6s heard 2 3`, `
1s: node 2 suspect to up 7
1s: node 3 suspect to up 9
4.4s: node 2 up to suspect 7 is heard through node 3
6s: node 2 suspect to up 7 is heard through node 3`},
		{"we stood still ourselves", `
			0s watch 2
			1s up 2 7
			2s down 2
			50s stall
			60s tick`, `
1s: node 2 suspect to up 7
50.8s: node 2 up to suspect 7 lost its link: reset`},
		{"a node that left the cluster", `
			0s watch 2 3
			1s up 2 7
			2s watch 3
			2s down 2
			3s up 2 8
			40s tick`, `
1s: node 2 suspect to up 7
30s: node 3 suspect to gone 0 has not been reached yet`},
	} {
		got := story(t, c.story)
		var lines []string
		for line := range strings.Lines(got) {
			lines = append(lines, strings.TrimSpace(line))
		}
		if got := strings.Join(lines, "\n"); got != strings.TrimSpace(c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, strings.TrimSpace(c.want))
		}
	}
	d := NewDetector()
	if is, why := d.Condition(9); is != Gone || why == "" {
		t.Errorf("a stranger is %v, %q", is, why)
	}
	d.Watch(0, []uint64{9})
	if is, why := d.Condition(9); is != Suspect || why == "" {
		t.Errorf("a new node is %v, %q", is, why)
	}
}
