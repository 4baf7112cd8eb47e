package node

import (
	"context"
	"net"
	"slices"
	"time"

	"holdfast/internal/config"
)

// resolveWait bounds a question to the name service.
const resolveWait = 2 * time.Second

// lookup is how names become addresses; the system's, but for tests.
type lookup func(ctx context.Context, host string) ([]string, error)

// joinList is the addresses that a node is told, as they are written.
func joinList(c config.Cluster) []string {
	list := slices.Clone(c.Join)
	if c.DNS != "" {
		_, port, _ := net.SplitHostPort(c.Address)
		list = append(list, net.JoinHostPort(c.DNS, port))
	}
	return list
}

// expand puts in place of a host name with several addresses all of them. found says that there was one, or that the name
// service did not know one: it may be others later. A name with one address stays as it is; where there are addresses of
// both families, those of the fourth version count, so that a node with one of each is not taken for two.
func expand(ctx context.Context, ask lookup, list []string) (addrs []string, found bool) {
	ctx, cancel := context.WithTimeout(ctx, resolveWait)
	defer cancel()
	for _, addr := range list {
		host, port, err := net.SplitHostPort(addr)
		if err != nil || net.ParseIP(host) != nil {
			addrs = append(addrs, addr)
			continue
		}
		ips, err := ask(ctx, host)
		var four, six []string
		for _, text := range ips {
			switch ip := net.ParseIP(text); {
			case ip == nil:
			case ip.To4() != nil:
				four = append(four, net.JoinHostPort(ip.String(), port))
			default:
				six = append(six, net.JoinHostPort(ip.String(), port))
			}
		}
		if len(four) == 0 {
			four = six
		}
		if err != nil || len(four) < 2 {
			addrs = append(addrs, addr)
			found = found || err != nil
			continue
		}
		addrs, found = append(addrs, four...), true
	}
	return addrs, found
}

// lookupHost asks the system.
func lookupHost(ctx context.Context, host string) ([]string, error) {
	return net.DefaultResolver.LookupHost(ctx, host)
}
