package mgmt

import (
	"errors"
	"net/http"

	"holdfast/internal/broker"
)

// listQueues gives the queues of a vhost; skip and limit page through them. With disable_stats, which RabbitMQ has for the same,
// no other node is asked for numbers.
func (s *Server) listQueues(_ http.ResponseWriter, r *http.Request) (any, error) {
	skip, err := whole(r, "skip")
	limit, err2 := whole(r, "limit")
	known, err3 := flag(r, "disable_stats")
	if err = errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	queues, _, err := s.options.Broker.ListQueues(r.PathValue("vhost"), broker.QueuePage{Skip: skip, Limit: limit, Known: known})
	return queues, about("vhost", err)
}

func (s *Server) listAllQueues(http.ResponseWriter, *http.Request) (any, error) {
	return s.options.Broker.ListAllQueues(), nil
}

func (s *Server) queue(_ http.ResponseWriter, r *http.Request) (any, error) {
	queue, err := s.options.Broker.QueueInfo(r.PathValue("vhost"), r.PathValue("queue"))
	return queue, about("queue", err)
}

func (s *Server) listExchanges(_ http.ResponseWriter, r *http.Request) (any, error) {
	exchanges, err := s.options.Broker.ListExchanges(r.PathValue("vhost"))
	return exchanges, about("vhost", err)
}

func (s *Server) listBindings(_ http.ResponseWriter, r *http.Request) (any, error) {
	bindings, err := s.options.Broker.ListBindings(r.PathValue("vhost"))
	return bindings, about("vhost", err)
}

func (s *Server) listConsumers(_ http.ResponseWriter, r *http.Request) (any, error) {
	consumers, err := s.options.Broker.ListConsumers(r.PathValue("vhost"))
	return consumers, about("vhost", err)
}

func (s *Server) listConnections(http.ResponseWriter, *http.Request) (any, error) {
	return s.options.Broker.ListConnections(), nil
}

func (s *Server) listChannels(http.ResponseWriter, *http.Request) (any, error) {
	return s.options.Broker.ListChannels(), nil
}

func (s *Server) listUsers(http.ResponseWriter, *http.Request) (any, error) {
	return s.options.Broker.ListUsers(), nil
}

func (s *Server) listVHosts(http.ResponseWriter, *http.Request) (any, error) {
	return s.options.Broker.ListVHosts(), nil
}

func (s *Server) listPermissions(_ http.ResponseWriter, r *http.Request) (any, error) {
	vhost := r.PathValue("vhost")
	if !s.hasVHost(vhost) {
		return nil, noVHost(vhost)
	}
	return s.options.Broker.ListPermissions(vhost, ""), nil
}

func (s *Server) listUserPermissions(_ http.ResponseWriter, r *http.Request) (any, error) {
	user := r.PathValue("user")
	if !s.hasUser(user) {
		return nil, noUser(user)
	}
	return s.options.Broker.ListPermissions("", user), nil
}
