package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
)

// gets compares reading one group of the big dataset with servers that have its bytes
// in memory.
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
	var uids []resource.UID // of equal length, so that the responses are
	for uid := range d.all() {
		if uid.Parent() != d.org {
			uids = append(uids, uid)
		}
	}
	rand.Shuffle(len(uids), func(i, j int) { uids[i], uids[j] = uids[j], uids[i] })
	least := 0.45
	if e.name() == "postgres" {
		least = 0.35
	}
	if err := getHTTP(ctx, s, uids, least, r); err != nil {
		return err
	}
	if err := getGRPC(ctx, s, uids, r); err != nil {
		return err
	}
	return largePages(ctx, s, r)
}

// pick distributes the requests of all clients over what there is to ask for.
func pick[T any](all []T) func(client int) T {
	next := make([]int, clients*8) // eight apart, so that clients do not share a cache line
	return func(client int) T {
		next[client*8]++
		return all[(next[client*8]*clients+client)%len(all)]
	}
}

func getHTTP(ctx context.Context, s *service, uids []resource.UID, least float64, r *report) error {
	c := newClient(s.token)
	defer c.close()
	const path = "/iam/v2beta1/groups/"
	header, body, err := c.do(ctx, http.MethodGet, "http://"+s.addr+path+string(uids[0]), "")
	if err != nil {
		return err
	}
	header.Del("Date") // net/http sets it
	address, stop, err := serveHTTP(ctx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		for name, values := range header {
			h[name] = values
		}
		w.Write(body)
	}))
	if err != nil {
		return err
	}
	defer stop()
	picked := pick(uids)
	get := func(server string) operation {
		return func(ctx context.Context, client int) error {
			_, got, err := c.do(ctx, http.MethodGet, server+path+string(picked(client)), "")
			if err == nil && len(got) != len(body) {
				err = fmt.Errorf("%d bytes, not %d", len(got), len(body))
			}
			return err
		}
	}
	return compareRates(ctx, r, "GET of a group, HTTP / empty net/http handler", least, get("http://"+s.addr),
		get(address))
}

func getGRPC(ctx context.Context, s *service, uids []resource.UID, r *report) error {
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
	l, err := listen(ctx)
	if err != nil {
		return err
	}
	srv := grpc.NewServer()
	iampb.RegisterGroupsServiceServer(srv, rawGroups{group: g})
	go func() { _ = srv.Serve(l) }() // ends with Stop
	defer srv.Stop()
	theirs, err := dial(l.Addr().String())
	if err != nil {
		return err
	}
	defer theirs.Close()
	picked := pick(uids)
	get := func(c iampb.GroupsServiceClient) operation {
		return func(ctx context.Context, client int) error {
			_, err := c.GetGroup(ctx, &iampb.GetGroupRequest{Uid: string(picked(client))})
			return err
		}
	}
	return compareRates(ctx, r, "GetGroup, gRPC / raw grpc-go server", 0, get(groups),
		get(iampb.NewGroupsServiceClient(theirs)))
}

// rawGroups responds with one message.
type rawGroups struct {
	iampb.UnimplementedGroupsServiceServer
	group *iampb.Group
}

func (s rawGroups) GetGroup(context.Context, *iampb.GetGroupRequest) (*iampb.Group, error) {
	return s.group, nil
}

// compareRates reports how often per second clients can do a and b, and how much processor time
// each needs.
func compareRates(ctx context.Context, r *report, what string, least float64, a, b operation) error {
	p, err := race(ctx, a, b)
	if err != nil {
		return err
	}
	r.faster(what, p, least)
	r.note("%s: %s of processor time in this process, client included; the baseline %s.",
		what, brief(p.cpuA), brief(p.cpuB))
	return nil
}

func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// largePages reports the rate of pages of the largest size.
func largePages(ctx context.Context, s *service, r *report) error {
	c := newClient(s.token)
	defer c.close()
	rate, _, err := rateOf(ctx, roundTime, func(ctx context.Context, _ int) error {
		_, _, err := c.do(ctx, http.MethodGet, s.listURL(s.org, page.MaxSize), "")
		return err
	})
	r.under("list over HTTP: pages of 200", rate, 0, perSecond)
	return err
}
