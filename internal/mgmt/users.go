package mgmt

import (
	"fmt"
	"net/http"

	"holdfast/internal/broker"
)

func (s *Server) hasVHost(name string) bool {
	for _, vhost := range s.options.Broker.ListVHosts() {
		if vhost.Name == name {
			return true
		}
	}
	return false
}

func (s *Server) hasUser(name string) bool {
	for _, user := range s.options.Broker.ListUsers() {
		if user.Name == name {
			return true
		}
	}
	return false
}

func noVHost(name string) error {
	return about("vhost", &broker.AdminError{Kind: broker.NotFound, Text: fmt.Sprintf("Virtual host '%s' does not exist", name)})
}

func noUser(name string) error {
	return about("user", &broker.AdminError{Kind: broker.NotFound, Text: fmt.Sprintf("User %q does not exist", name)})
}

func (s *Server) addUser(w http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ Name, Password string }
	if err := s.read(w, r, &in); err != nil {
		return nil, err
	}
	if in.Name == "" {
		return nil, invalid("the name of a user must not be empty")
	}
	if s.hasUser(in.Name) { // a check for the sake of a good answer; the broker makes its own
		return nil, &broker.AdminError{Kind: broker.Exists, Text: fmt.Sprintf("User %q already exists", in.Name)}
	}
	return nil, s.options.Broker.AddUser(in.Name, in.Password)
}

func (s *Server) deleteUser(_ http.ResponseWriter, r *http.Request) (any, error) {
	user := r.PathValue("user")
	if !s.hasUser(user) {
		return nil, noUser(user)
	}
	return nil, about("user", s.options.Broker.DeleteUser(user))
}

func (s *Server) changePassword(w http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ Password string }
	if err := s.read(w, r, &in); err != nil {
		return nil, err
	}
	user := r.PathValue("user")
	if !s.hasUser(user) {
		return nil, noUser(user)
	}
	return nil, about("user", s.options.Broker.ChangePassword(user, in.Password))
}

func (s *Server) setTags(w http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ Tags []string }
	if err := s.read(w, r, &in); err != nil {
		return nil, err
	}
	user := r.PathValue("user")
	if !s.hasUser(user) {
		return nil, noUser(user)
	}
	return nil, about("user", s.options.Broker.SetUserTags(user, in.Tags))
}

func (s *Server) authenticate(w http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ Password string }
	if err := s.read(w, r, &in); err != nil {
		return nil, err
	}
	return nil, s.options.Broker.AuthenticateUser(r.PathValue("user"), in.Password)
}

func (s *Server) setPermissions(w http.ResponseWriter, r *http.Request) (any, error) {
	var in struct{ Configure, Write, Read string }
	if err := s.read(w, r, &in); err != nil {
		return nil, err
	}
	vhost, user := r.PathValue("vhost"), r.PathValue("user")
	if err := s.both(vhost, user); err != nil {
		return nil, err
	}
	return nil, s.options.Broker.SetPermissions(vhost, user, in.Configure, in.Write, in.Read)
}

func (s *Server) clearPermissions(_ http.ResponseWriter, r *http.Request) (any, error) {
	vhost, user := r.PathValue("vhost"), r.PathValue("user")
	if err := s.both(vhost, user); err != nil {
		return nil, err
	}
	return nil, s.options.Broker.ClearPermissions(vhost, user)
}

// both says which of a user and a vhost does not exist.
func (s *Server) both(vhost, user string) error {
	if !s.hasUser(user) {
		return noUser(user)
	}
	if !s.hasVHost(vhost) {
		return noVHost(vhost)
	}
	return nil
}

func (s *Server) addVHost(w http.ResponseWriter, r *http.Request) (any, error) {
	var in struct {
		Name, Description string
		Tags              []string
	}
	if err := s.read(w, r, &in); err != nil {
		return nil, err
	}
	if in.Name == "" {
		return nil, invalid("the name of a virtual host must not be empty")
	}
	return nil, s.options.Broker.AddVHost(in.Name, in.Description, in.Tags)
}

func (s *Server) deleteVHost(_ http.ResponseWriter, r *http.Request) (any, error) {
	vhost := r.PathValue("vhost")
	if !s.hasVHost(vhost) {
		return nil, noVHost(vhost)
	}
	return nil, about("vhost", s.options.Broker.DeleteVHost(vhost))
}
