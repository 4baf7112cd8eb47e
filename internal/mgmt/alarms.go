package mgmt

import (
	"net/http"

	"holdfast/internal/broker"
)

// ClusterAlarm is one alarm of a node, with the names of RabbitMQ.
type ClusterAlarm struct {
	Type     string `json:"type"`     // resource_limit
	Resource string `json:"resource"` // memory, disk
	Node     string `json:"node"`
}

// alarms are those of this node, whose name is self, and those of others, as this one has heard.
func (s *Server) alarms(self string) []ClusterAlarm {
	list := []ClusterAlarm{}
	add := func(kind broker.AlarmKind, node string) {
		list = append(list, ClusterAlarm{"resource_limit", string(kind), node})
	}
	for _, a := range s.options.Broker.Alarms() {
		add(a.Kind, self)
	}
	for _, node := range s.options.Broker.AlarmsElsewhere() {
		for _, kind := range node.Kinds {
			add(kind, node.Name)
		}
	}
	return list
}

// Marks are where this node raises its alarms. What is set holds until the node ends.
type Marks interface {
	// SetMemoryMark takes a share of the memory there is or, if that is 0, bytes in use.
	SetMemoryMark(share float64, bytes uint64) error
	// SetDiskMark takes a multiple of the memory there is or, if that is 0, bytes free on the disk.
	SetDiskMark(multiple float64, bytes uint64) error
}

// markRoutes are about the marks.
func (s *Server) markRoutes() map[string]handler {
	set := func(most float64, change func(relative float64, bytes uint64) error) handler {
		return func(w http.ResponseWriter, r *http.Request) (any, error) {
			var in struct {
				Relative float64
				Absolute uint64
			}
			if err := s.read(w, r, &in); err != nil {
				return nil, err
			}
			switch {
			case in.Relative != 0 && in.Absolute != 0:
				return nil, invalid("a mark is relative or absolute, not both")
			case in.Relative < 0 || in.Relative > most:
				return nil, invalid("relative is out of bounds")
			}
			return nil, change(in.Relative, in.Absolute)
		}
	}
	return map[string]handler{
		"PUT /api/marks/memory": set(1, func(relative float64, bytes uint64) error {
			if relative == 0 && bytes == 0 {
				return invalid("the memory mark must be above 0")
			}
			return s.options.Marks.SetMemoryMark(relative, bytes)
		}),
		"PUT /api/marks/disk": set(100, func(relative float64, bytes uint64) error { return s.options.Marks.SetDiskMark(relative, bytes) }),
	}
}
