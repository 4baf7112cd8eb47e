package blackbox

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// R424, R425, R426: what changes very much of the topology does what it says, with numbers as small as a test may have; what it costs, the
// scenarios of bench/scenarios.txt and bench/scenarios-cluster.txt measure by the same means.
func TestTopologyChangesMuch(t *testing.T) {
	t.Parallel()
	if target.binary == "" {
		t.Skip("there is no binary")
	}
	for _, c := range []struct {
		options, figure string
		most            float64 // of the figure; 0: it must be there
	}{
		{"-n 300 --parallel 4", "delete_rate", 0},
		{"-n 100 --parallel 4 -f persistent -t direct", "delete_rate", 0},
		{"--what exclusive -n 600", "gone_s", 0},
		{"--what unbind -n 600 -x 3 -r 300 -z 0.5", "delete_ms", 0},
		{"--what unbind -n 200 -x 2 -r 300 -z 0.3 -t headers", "unconfirmed", 0.5},
	} {
		out, err := exec.Command(target.binary, append([]string{"perf", "topology", "--json", "-h", target.url}, strings.Fields(c.options)...)...).Output()
		ok(t, err)
		var report struct {
			Figures map[string]float64
			Errors  []string
		}
		ok(t, json.Unmarshal(out, &report))
		got, is := report.Figures[c.figure]
		if !is || len(report.Errors) > 0 || c.most == 0 && got <= 0 || c.most > 0 && got > c.most {
			t.Errorf("%s: %s", c.options, out)
		}
	}
}
