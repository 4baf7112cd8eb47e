package perf

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// hertz is the unit of CPU time in /proc, the same on every Linux there is.
const hertz = 100

// procStat is what /proc/PID/stat says of a process.
type procStat struct {
	state  byte
	parent int
	cpu    float64 // seconds, user and system
}

// parseStat reads the line of /proc/PID/stat. The name in it may hold anything.
func parseStat(text string) (s procStat, ok bool) {
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 13 {
		return s, false
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	s.state = f[0][0]
	s.parent, _ = strconv.Atoi(f[1])
	s.cpu = (user + system) / hertz
	return s, true
}

func readStat(pid int) (procStat, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, false
	}
	return parseStat(string(text))
}

// field finds a number such as "RssAnon:  12 kB" in a file of /proc.
func field(text, name string) uint64 {
	for line := range strings.Lines(text) {
		if rest, is := strings.CutPrefix(line, name+":"); is {
			f := strings.Fields(rest)
			if len(f) == 0 {
				return 0
			}
			n, _ := strconv.ParseUint(f[0], 10, 64)
			if len(f) > 1 && f[1] == "kB" {
				n <<= 10
			}
			return n
		}
	}
	return 0
}

// family is the pids and all their descendants.
func family(roots []int) []int {
	if len(roots) == 0 {
		return nil
	}
	children := map[int][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return roots
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, ok := readStat(pid); ok {
			children[s.parent] = append(children[s.parent], pid)
		}
	}
	var all []int
	seen := map[int]bool{}
	for todo := roots; len(todo) > 0; {
		pid := todo[0]
		todo = todo[1:]
		if seen[pid] {
			continue
		}
		seen[pid] = true
		all = append(all, pid)
		todo = append(todo, children[pid]...)
	}
	return all
}

// reading is what was used up to one moment.
type reading struct {
	at      time.Time
	self    float64 // CPU seconds of this process
	broker  float64
	beside  float64 // of other load generators that belong to the run
	all     float64 // of everything on the machine
	stolen  float64 // taken by the hypervisor
	written uint64  // bytes the broker sent to the disk
	memory
}

// memory is what a broker's processes hold.
type memory struct{ resident, anonymous uint64 }

func memoryOf(pids []int) (m memory) {
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err == nil {
			m.resident += field(string(text), "VmRSS")
			m.anonymous += field(string(text), "RssAnon")
		}
	}
	return m
}

func selfCPU() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// machineCPU reads the first line of /proc/stat.
func machineCPU() (used, stolen float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	return parseMachine(string(text))
}

func parseMachine(text string) (used, stolen float64) {
	line, _, _ := strings.Cut(text, "\n")
	for i, s := range strings.Fields(line) {
		v, _ := strconv.ParseFloat(s, 64)
		switch i {
		case 1, 2, 3, 6, 7: // user, nice, system, interrupts
			used += v / hertz
		case 8:
			stolen = v / hertz
		}
	}
	return used, stolen
}

// meter follows the broker's processes and the machine. With no pids it knows
// only what this process takes.
type meter struct {
	roots  []int
	beside []int
	quit   chan struct{}

	mu   sync.Mutex
	pids []int
	peak uint64 // most resident memory seen
}

func newMeter(broker, beside []int) *meter {
	m := &meter{roots: broker, beside: beside, quit: make(chan struct{}), pids: family(broker)}
	if len(broker) > 0 {
		go m.watch()
	}
	return m
}

// watch looks for the highest memory between readings.
func (m *meter) watch() {
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-m.quit:
			return
		case <-t.C:
			m.mu.Lock()
			m.peak = max(m.peak, memoryOf(m.pids).resident)
			m.mu.Unlock()
		}
	}
}

func (m *meter) stop() { close(m.quit) }

func cpuOf(pids []int) (seconds float64) {
	for _, pid := range pids {
		s, _ := readStat(pid)
		seconds += s.cpu
	}
	return seconds
}

func (m *meter) read() reading {
	r := reading{at: time.Now(), self: selfCPU()}
	r.all, r.stolen = machineCPU()
	r.beside = cpuOf(family(m.beside))
	if len(m.roots) == 0 {
		return r
	}
	pids := family(m.roots)
	r.broker = cpuOf(pids)
	r.memory = memoryOf(pids)
	for _, pid := range pids {
		if text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/io"); err == nil {
			r.written += field(string(text), "write_bytes")
		}
	}
	m.mu.Lock()
	m.pids = pids
	m.peak = max(m.peak, r.resident)
	m.mu.Unlock()
	return r
}

// Costs are what a run took between two readings.
type Costs struct {
	ClientCores float64 `json:"client_cores"`
	ClientMicro float64 `json:"client_us_per_msg,omitempty"`
	// The rest is there only if the broker's pid is known.
	Broker *BrokerCosts `json:"broker,omitempty"`
}

// BrokerCosts are what the broker took, and what was left for others to take.
type BrokerCosts struct {
	Cores       float64 `json:"cores"`
	CPUSeconds  float64 `json:"cpu_seconds"`
	Micro       float64 `json:"us_per_msg,omitempty"`
	WrittenMB   float64 `json:"written_mb"`
	ResidentMB  float64 `json:"rss_mb"`
	AnonymousMB float64 `json:"rss_anon_mb"`
	PeakMB      float64 `json:"rss_peak_mb"`
	OtherCores  float64 `json:"other_cores"` // everything that is neither broker nor load generator
	StolenCores float64 `json:"stolen_cores"`
}

// costs compares two readings; messages is what the cost is divided by.
func (m *meter) costs(a, b reading, messages uint64) Costs {
	wall := b.at.Sub(a.at).Seconds()
	if wall <= 0 {
		return Costs{}
	}
	each := func(seconds float64) float64 {
		if messages == 0 {
			return 0
		}
		return round(seconds*1e6/float64(messages), 3)
	}
	self, broker := b.self-a.self, b.broker-a.broker
	c := Costs{ClientCores: round(self/wall, 3), ClientMicro: each(self)}
	if len(m.roots) == 0 {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	other := (b.all - a.all) - broker - self - (b.beside - a.beside)
	c.Broker = &BrokerCosts{
		Cores: round(broker/wall, 3), CPUSeconds: round(broker, 2), Micro: each(broker),
		WrittenMB: megabytes(b.written - min(a.written, b.written)), ResidentMB: megabytes(b.resident), AnonymousMB: megabytes(b.anonymous),
		PeakMB: megabytes(m.peak), OtherCores: round(max(0, other)/wall, 2), StolenCores: round((b.stolen-a.stolen)/wall, 2),
	}
	return c
}

func megabytes(n uint64) float64 { return round(float64(n)/(1<<20), 1) }
