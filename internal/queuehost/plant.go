package queuehost

import "holdfast/internal/planted"

// plant makes those mistakes that are made when the leader of a quorum queue has packed an entry.
func (p *pack) plant() {
	switch {
	case planted.Is(planted.SettledEarly):
		p.tellMarks()
		p.marks = p.marks[:0]
	case planted.Is(planted.ConfirmEarly):
		for _, r := range p.runs {
			ps := p.from.publishes[r.from:r.to]
			for i := range ps {
				if ps[i].Ticket != nil {
					ps[i].Ticket.Settled(ps[i].Seq, ps[i].Seq, Accepted)
					ps[i].Ticket = nil
				}
			}
		}
	}
}
