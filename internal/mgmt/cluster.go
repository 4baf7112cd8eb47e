package mgmt

import "net/http"

// Cluster is how the cluster stands as one node sees it, with the names of rabbitmqctl cluster_status.
type Cluster struct {
	Name         string                       `json:"cluster_name"`
	DiskNodes    []string                     `json:"disk_nodes"`
	RAMNodes     []string                     `json:"ram_nodes"` // there are none
	RunningNodes []string                     `json:"running_nodes"`
	Versions     map[string]map[string]string `json:"versions"` // of nodes that were heard
	Maintenance  map[string]string            `json:"maintenance_status"`
	Alarms       []ClusterAlarm               `json:"alarms"` // of all nodes, as far as this one has heard
	Partitions   map[string][]string          `json:"partitions"`
	Listeners    map[string][]Listener        `json:"listeners"` // of this node
	Flags        []string                     `json:"feature_flags"`

	Level int           `json:"format_level"` // of the formats that nodes exchange
	Nodes []ClusterNode `json:"nodes"`
}

// ClusterNode is one node of the cluster.
type ClusterNode struct {
	Name    string `json:"name"`
	ID      string `json:"id"` // a number that JSON's readers could not hold
	Address string `json:"address"`
	State   string `json:"state"` // up, suspect, gone
	Reason  string `json:"reason,omitempty"`
	Voter   bool   `json:"voter"`  // votes in the catalog's group
	Leader  bool   `json:"leader"` // leads it, as far as is known here
	Self    bool   `json:"self"`
	Levels  Levels `json:"format_levels"` // that it knows
}

// Levels are those from one to another.
type Levels struct {
	Least int `json:"least"`
	Most  int `json:"most"`
}

func (s *Server) cluster(http.ResponseWriter, *http.Request) (any, error) {
	c := s.options.Cluster()
	self := ""
	for _, n := range c.Nodes {
		if n.Self {
			self = n.Name
		}
	}
	c.Alarms = s.alarms(self)
	return c, nil
}
