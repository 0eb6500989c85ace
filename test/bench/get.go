package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// gets compares reading one group of the big dataset with a server that has its bytes in
// memory.
func gets(ctx context.Context, m *measurement) {
	d := m.groups(ctx, m.bench.rows)
	s := m.serve(ctx, d.url)
	var uids []resource.UID // of equal length, so that the responses are
	for uid := range d.all() {
		if uid.Parent() != d.org {
			uids = append(uids, uid)
		}
	}
	rand.Shuffle(len(uids), func(i, j int) { uids[i], uids[j] = uids[j], uids[i] })
	least := map[string]float64{"sqlite": 0.45, "postgres": 0.35}[m.engine.name()]
	const path = "/iam/v2beta1/groups/"
	header, body, err := s.do(ctx, http.StatusOK, http.MethodGet, path+string(uids[0]), nil)
	check(err)
	header.Del("Date") // net/http sets it
	address := m.serveHTTP(ctx, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), header)
		w.Write(body)
	}))
	picked := pick(uids)
	get := func(c *client) operation {
		return func(ctx context.Context, client int) error {
			got, err := c.get(ctx, path+string(picked(client)))
			if err == nil && len(got) != len(body) {
				err = fmt.Errorf("%d bytes, not %d", len(got), len(body))
			}
			return err
		}
	}
	m.compareRates(ctx, "GET of a group, HTTP / empty net/http handler", least, get(s.client),
		get(newClient(address, s.token)))
}

// pick distributes the requests of all clients over what there is to ask for.
func pick[T any](all []T) func(client int) T {
	next := make([]int, clients*8) // eight apart, so that clients do not share a cache line
	return func(client int) T {
		next[client*8]++
		return all[(next[client*8]*clients+client)%len(all)]
	}
}

// compareRates reports how often per second clients can do a and b, and how much processor time
// each needs.
func (m *measurement) compareRates(ctx context.Context, what string, least float64, a, b operation) {
	p := race(ctx, a, b)
	m.faster(what, p, least)
	m.note("%s: %s of processor time in this process, client included; the baseline %s.",
		what, brief(p.cpuA), brief(p.cpuB))
}

// dial connects to a server until the measurement ends.
func (m *measurement) dial(address string) *grpc.ClientConn {
	host := strings.TrimPrefix(address, "http://")
	conn := must(grpc.NewClient("passthrough:///"+host, grpc.WithTransportCredentials(insecure.NewCredentials())))
	m.atEnd(conn.Close)
	return conn
}
