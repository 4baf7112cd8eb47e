package mgmt

import (
	"net/http"

	"holdfast/internal/broker"
)

// policyRoutes are about policies and operator policies. Their paths and fields are those of RabbitMQ's management API.
func (s *Server) policyRoutes() map[string]handler {
	routes := map[string]handler{}
	for kind, operator := range map[string]bool{"policies": false, "operator-policies": true} {
		routes["GET /api/"+kind+"/{vhost}"] = s.listPolicies(operator)
		routes["PUT /api/"+kind+"/{vhost}/{policy}"] = s.setPolicy(operator)
		routes["DELETE /api/"+kind+"/{vhost}/{policy}"] = s.clearPolicy(operator)
	}
	return routes
}

func (s *Server) listPolicies(operator bool) handler {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		list, err := s.options.Broker.ListPolicies(r.PathValue("vhost"), operator)
		return list, about("vhost", err)
	}
}

func (s *Server) setPolicy(operator bool) handler {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		var in struct {
			Pattern    string
			ApplyTo    string `json:"apply-to"`
			Definition any
			Priority   int64
		}
		if err := s.read(w, r, &in); err != nil {
			return nil, err
		}
		return nil, about("vhost", s.options.Broker.SetPolicy(broker.AdminPolicy{
			VHost: r.PathValue("vhost"), Name: r.PathValue("policy"), Operator: operator,
			Pattern: in.Pattern, ApplyTo: in.ApplyTo, Priority: in.Priority, Definition: in.Definition,
		}))
	}
}

func (s *Server) clearPolicy(operator bool) handler {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		return nil, about("policy", s.options.Broker.ClearPolicy(r.PathValue("vhost"), r.PathValue("policy"), operator))
	}
}
