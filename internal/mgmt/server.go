package mgmt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/config"
	"holdfast/internal/metrics"
	"holdfast/internal/mgmt/socket"
)

// Broker is what the management side asks of the broker; *broker.Broker is one.
type Broker interface {
	ListQueues(vhost string, p broker.QueuePage) (list []broker.QueueInfo, total int, err error)
	ListAllQueues() []broker.QueueInfo
	CountQueues() (total int, quarantined []broker.QueueInfo)
	QueueInfo(vhost, name string) (broker.QueueInfo, error)
	ListExchanges(vhost string) ([]broker.ExchangeInfo, error)
	ListBindings(vhost string) ([]broker.BindingInfo, error)
	ListConnections() []broker.ConnectionInfo
	ListChannels() []broker.ChannelInfo
	ListConsumers(vhost string) ([]broker.ConsumerInfo, error)
	ListUsers() []broker.User
	ListPermissions(vhost, user string) []broker.Permission
	ListVHosts() []broker.VHost
	ListOrphans() []broker.OrphanInfo

	AddUser(name, password string) error
	ChangePassword(name, password string) error
	DeleteUser(name string) error
	SetUserTags(name string, tags []string) error
	AuthenticateUser(name, password string) error
	SetPermissions(vhost, user, configure, write, read string) error
	ClearPermissions(vhost, user string) error
	ListPolicies(vhost string, operator bool) ([]broker.Policy, error)
	SetPolicy(broker.AdminPolicy) error
	ClearPolicy(vhost, name string, operator bool) error
	AddVHost(name, description string, tags []string) error
	DeleteVHost(name string) error

	AdminDeclareQueue(broker.AdminQueue) error
	AdminDeleteQueue(vhost, name string, ifUnused, ifEmpty bool) (uint64, error)
	AdminPurgeQueue(vhost, name string) (uint64, error)
	AdminPauseQueue(vhost, name string, on bool) error
	Redrive(ctx context.Context, o broker.Redrive, progress func(broker.Redriven)) (broker.Redriven, error)
	AdminPublish(broker.AdminPublish) (queues int, err error)
	AdminGet(vhost, queue string, n int, requeue bool) ([]broker.AdminMessage, error)
	AdminForceDeleteQueue(vhost, name string) error
	DiscardGroup(group uint64) error
	Explain(ctx context.Context, vhost, queue string) (broker.Explanation, error)

	CloseConnection(name, reason string) error
	CloseAllConnections(vhost, user, reason string) int

	Alarms() []broker.Alarm
	AlarmsElsewhere() []broker.NodeAlarms
	Health() error
}

var _ Broker = (*broker.Broker)(nil)

// Options say what a Server is built from.
type Options struct {
	Broker     Broker
	Settings   *config.Settings
	ConfigFile string       // "" if there is none
	Facts      func() Facts // the node as a whole
	Cluster    func() Cluster
	Stale      func() string // why listings may be old, "" if they are not; nil: they never are
	Quorum     Quorum
	Marks      Marks
	Metrics    http.Handler // the aggregated page
	Objects    metrics.Objects
	Logger     *slog.Logger
	// Door is the local socket of the process, where that outlives the node; nil: the server opens one for itself.
	Door *Door
	// Lenient says that the HTTP addresses are defaults that nobody asked for: one that is taken is a warning.
	Lenient bool
}

// Server is the management side of a running node.
type Server struct {
	options Options
	servers []*http.Server
	public  []net.Addr
}

// Start opens the local socket and the HTTP listeners.
func Start(o Options) (*Server, error) {
	s := &Server{options: o}
	if err := s.open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) open() error {
	if s.options.Door != nil {
		s.options.Door.attach(s.localAPI())
	} else {
		local, err := socket.Listen(s.options.Settings.DataDir)
		if err != nil {
			return err
		}
		s.serve(local, s.localAPI())
	}
	page := s.publicPages()
	for _, address := range s.options.Settings.HTTPListeners() {
		l, err := net.Listen("tcp", address)
		switch {
		case err != nil && s.options.Lenient:
			s.options.Logger.Warn("the default HTTP address is taken: metrics are not served there", "address", address, "error", err)
			continue
		case err != nil:
			return fmt.Errorf("HTTP listener: %w", err)
		}
		s.public = append(s.public, l.Addr())
		s.serve(l, page)
	}
	return nil
}

// serve answers requests on a listener until Close. A slow or silent client holds nothing but its own connection.
func (s *Server) serve(l net.Listener, handler http.Handler) {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.options.Logger.Handler(), slog.LevelDebug),
	}
	s.servers = append(s.servers, server)
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.options.Logger.Error("management listener ended", "address", l.Addr().String(), "error", err)
		}
	}()
}

// Addresses are where the HTTP listeners are, in the order of the settings.
func (s *Server) Addresses() []net.Addr { return s.public }

// closeLimit is how long requests under way get at the end.
const closeLimit = 2 * time.Second

// Close stops listening, lets requests under way finish for a moment, and ends the rest.
func (s *Server) Close() error {
	if s.options.Door != nil {
		s.options.Door.attach(nil)
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	var err error
	for _, server := range s.servers {
		if server.Shutdown(ctx) != nil {
			err = errors.Join(err, server.Close())
		}
	}
	return err
}
