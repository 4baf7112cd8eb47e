package perf

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const parts = 4

// quarters splits a run into four parts of the same length, so that what grows
// with time shows.
type quarters struct {
	meter  *meter
	folder string // "" = the disk is not looked at
	begun  time.Time
	each   time.Duration
	part   [parts]quarter
}

// quarter is what one part saw.
type quarter struct {
	latency, confirm    Histogram
	samples             int
	anonymous, resident float64 // sums of the samples
	disk                uint64  // the most
	first, last         reading
	before, received    uint64 // messages at the first and the last sample
}

func newQuarters(m *meter, folder string, long time.Duration) *quarters {
	return &quarters{meter: m, folder: folder, begun: time.Now(), each: max(long/parts, time.Millisecond)}
}

// add puts a sample into the part it belongs to: what came since the last one,
// and the memory and the disk as they are.
func (q *quarters) add(latency, confirm *Histogram, received uint64) {
	i := min(int(time.Since(q.begun)/q.each), parts-1)
	p := &q.part[i]
	p.latency.Merge(latency)
	p.confirm.Merge(confirm)
	now := q.meter.read()
	if p.samples == 0 {
		p.first, p.before = now, received
	}
	p.last, p.received = now, received
	p.samples++
	p.anonymous += float64(now.anonymous)
	p.resident += float64(now.resident)
	if q.folder != "" {
		p.disk = max(p.disk, diskUse(q.folder))
	}
}

// report writes a figure for each part, and what the last is to the first.
func (q *quarters) report(r *Report) {
	each := func(name, unit string, value func(p *quarter) float64) {
		var first, last float64
		for i := range q.part {
			v := 0.0
			if p := &q.part[i]; p.samples > 0 {
				v = value(p)
			}
			if i == 0 {
				first = v
			}
			last = v
			r.figure(name+"_q"+strconv.Itoa(i+1), v, fmt.Sprintf("%s, quarter %d", unit, i+1))
		}
		if first > 0 {
			r.figure(name+"_growth", last/first, "of that, the last quarter by the first")
		}
	}
	mib := func(v float64) float64 { return v / (1 << 20) }
	us := func(h *Histogram, at float64) float64 { return float64(h.Quantile(at)) / 1e3 }
	each("received_rate", "messages a second", func(p *quarter) float64 {
		wall := p.last.at.Sub(p.first.at).Seconds()
		if wall == 0 {
			return 0
		}
		return float64(p.received-p.before) / wall
	})
	each("latency_p50", "us", func(p *quarter) float64 { return us(&p.latency, 0.5) })
	each("latency_p99", "us", func(p *quarter) float64 { return us(&p.latency, 0.99) })
	each("latency_max", "us", func(p *quarter) float64 { return us(&p.latency, 1) })
	if r.Confirm != nil {
		each("confirm_p99", "us", func(p *quarter) float64 { return us(&p.confirm, 0.99) })
	}
	if len(q.meter.roots) > 0 {
		each("anonymous_mib", "MiB of anonymous memory, mean", func(p *quarter) float64 { return mib(p.anonymous / float64(p.samples)) })
		each("resident_mib", "MiB of resident memory, mean", func(p *quarter) float64 { return mib(p.resident / float64(p.samples)) })
		each("broker_cores", "cores of the broker", func(p *quarter) float64 {
			wall := p.last.at.Sub(p.first.at).Seconds()
			if wall == 0 {
				return 0
			}
			return (p.last.broker - p.first.broker) / wall
		})
	}
	if q.folder != "" {
		each("disk_mib", "MiB on disk, at most", func(p *quarter) float64 { return mib(float64(p.disk)) })
	}
}

// diskUse is what the files under a folder take on the disk. A file that goes
// away meanwhile counts as nothing.
func diskUse(folder string) (n uint64) {
	_ = filepath.WalkDir(folder, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			n += blocks(info)
		}
		return nil
	})
	return n
}

// blocks is what a file takes on the disk.
func blocks(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Blocks) * 512
	}
	return uint64(info.Size())
}
