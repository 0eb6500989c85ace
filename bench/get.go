package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// gets compares reading one group with servers that have its bytes at hand.
func gets(ctx context.Context, b *bench, e engine, r *report) (err error) {
	d, err := b.groups(ctx, e, b.rows)
	if err != nil {
		return err
	}
	s, err := b.serve(ctx, d.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	var uids []resource.UID // of one length, and so are the answers
	for uid := range d.all() {
		if uid.Parent() != d.org {
			uids = append(uids, uid)
		}
	}
	rand.Shuffle(len(uids), func(i, j int) { uids[i], uids[j] = uids[j], uids[i] })
	half := len(uids) / 2
	first := sample{"the first read of each", uids[:half], 0, 0}
	if err := getHTTP(ctx, s, first, r); err != nil {
		return err
	}
	first.uids = uids[half:]
	if err := getGRPC(ctx, s, first, r); err != nil {
		return err
	}
	if err := readAll(ctx, s, uids); err != nil {
		return err
	}
	again := sample{fmt.Sprintf("any of %d, each read before", len(uids)), uids, 0.5, 0.8}
	if err := getHTTP(ctx, s, again, r); err != nil {
		return err
	}
	if err := getGRPC(ctx, s, again, r); err != nil {
		return err
	}
	return encoding(ctx, s, r)
}

// A sample is the groups that are read, in what case they are, and which share
// of the baseline's rate is to be reached over each protocol, if any.
type sample struct {
	what       string
	uids       []resource.UID
	http, grpc float64
}

// readAll reads groups once.
func readAll(ctx context.Context, s *service, uids []resource.UID) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.token)
	conn, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	groups := iampb.NewGroupsServiceClient(conn)
	return together(clients, func(client int) error {
		for i := client; i < len(uids); i += clients {
			if _, err := groups.GetGroup(ctx, &iampb.GetGroupRequest{Uid: string(uids[i])}); err != nil {
				return err
			}
		}
		return nil
	})
}

// pick spreads the requests of all clients over what there is to ask for.
func pick[T any](all []T) func(client int) T {
	next := make([]int, clients*8) // eight apart: clients do not share a cache line
	return func(client int) T {
		next[client*8]++
		return all[(next[client*8]*clients+client)%len(all)]
	}
}

func getHTTP(ctx context.Context, s *service, some sample, r *report) error {
	uids := some.uids
	c := newClient(s.token)
	defer c.close()
	group := func(uid resource.UID) string { return "http://" + s.addr + "/iam/v2beta1/groups/" + string(uid) }
	header, body, err := c.do(ctx, http.MethodGet, group(uids[0]), "")
	if err != nil {
		return err
	}
	address, stop, err := empty(ctx, header, body)
	if err != nil {
		return err
	}
	defer stop()
	picked := pick(uids)
	get := func(base func(resource.UID) string) func(context.Context, int) error {
		return func(ctx context.Context, client int) error {
			_, got, err := c.do(ctx, http.MethodGet, base(picked(client)), "")
			if err == nil && len(got) != len(body) {
				err = fmt.Errorf("%d bytes, not %d", len(got), len(body))
			}
			return err
		}
	}
	p, err := race(ctx, get(group), get(func(uid resource.UID) string { return address + "/iam/v2beta1/groups/" + string(uid) }))
	if err != nil {
		return err
	}
	r.faster("GET, HTTP / empty net/http handler: "+some.what, p, some.http)
	r.note("HTTP GET, %s: %s of processor time in this process, client included; the empty handler %s.", some.what, brief(p.cpuA), brief(p.cpuB))
	_, err = whereOf(ctx, r, "HTTP GET, "+some.what, get(group))
	return err
}

// empty starts a server that answers everything with the same headers and bytes.
func empty(ctx context.Context, header http.Header, body []byte) (address string, stop func(), _ error) {
	header.Del("Date") // net/http writes it
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		for name, values := range header {
			h[name] = values
		}
		w.Write(body)
	})}
	go func() { _ = srv.Serve(l) }() // it ends with Close
	return "http://" + l.Addr().String(), func() { srv.Close() }, nil
}

func getGRPC(ctx context.Context, s *service, some sample, r *report) error {
	uids := some.uids
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.token)
	ours, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer ours.Close()
	groups := iampb.NewGroupsServiceClient(ours)
	g, err := groups.GetGroup(ctx, &iampb.GetGroupRequest{Uid: string(uids[0])})
	if err != nil {
		return err
	}
	addr, stop, err := raw(ctx, g)
	if err != nil {
		return err
	}
	defer stop()
	theirs, err := dial(addr)
	if err != nil {
		return err
	}
	defer theirs.Close()
	picked := pick(uids)
	get := func(c iampb.GroupsServiceClient) func(context.Context, int) error {
		return func(ctx context.Context, client int) error {
			_, err := c.GetGroup(ctx, &iampb.GetGroupRequest{Uid: string(picked(client))})
			return err
		}
	}
	p, err := race(ctx, get(groups), get(iampb.NewGroupsServiceClient(theirs)))
	if err != nil {
		return err
	}
	r.faster("GetGroup, gRPC / raw grpc-go server: "+some.what, p, some.grpc)
	r.note("gRPC GetGroup, %s: %s of processor time in this process, client included; the raw server %s.", some.what, brief(p.cpuA), brief(p.cpuB))
	_, err = whereOf(ctx, r, "gRPC GetGroup, "+some.what, get(groups))
	return err
}

// whereOf notes where the processor time of a few rounds goes.
func whereOf(ctx context.Context, r *report, what string, f func(context.Context, int) error) (profile, error) {
	p, err := profiled(func() error {
		for range profiledRounds {
			if _, _, err := crowd(ctx, roundTime, f); err != nil {
				return err
			}
		}
		return nil
	})
	r.note("Where the processor time of %s goes: %s.", what, p.parts())
	return p, err
}

func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// rawGroups answers with one message.
type rawGroups struct {
	iampb.UnimplementedGroupsServiceServer
	group *iampb.Group
}

func (s rawGroups) GetGroup(context.Context, *iampb.GetGroupRequest) (*iampb.Group, error) {
	return s.group, nil
}

// raw starts a gRPC server that answers with g.
func raw(ctx context.Context, g *iampb.Group) (addr string, stop func(), _ error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := grpc.NewServer()
	iampb.RegisterGroupsServiceServer(srv, rawGroups{group: g})
	go func() { _ = srv.Serve(l) }() // it ends with Stop
	return l.Addr().String(), srv.Stop, nil
}

// encoding reports what JSON is of the work for a page of the greatest size.
func encoding(ctx context.Context, s *service, r *report) error {
	c := newClient(s.token)
	defer c.close()
	address := s.listURL(s.org, page.MaxSize)
	list := func(ctx context.Context, _ int) error {
		_, _, err := c.do(ctx, http.MethodGet, address, "")
		return err
	}
	rate, _, err := crowd(ctx, roundTime, list)
	if err != nil {
		return err
	}
	p, err := whereOf(ctx, r, "pages of 200", list)
	if err != nil {
		return err
	}
	json := p.share("api.(*encoder).append") / p.share("net/http.(*conn).serve")
	r.under("list over HTTP: pages of 200", rate, 0, perSecond)
	r.under("list over HTTP: JSON's share of serving a page of 200", json, 0, percent)
	return nil
}
