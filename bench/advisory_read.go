package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/holdfast-dev/holdfast/advisory"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// The orders of pages of advisories.
var advisoryOrders = []page.Order{{Field: "uid"}, {Field: "update_time", Desc: true}}

// list reads a page of advisories.
func (s advisoryStore) list(
	ctx context.Context, f resource.AdvisoryFilter, p page.Request,
) (page.Page[resource.Advisory], error) {
	return s.lists.Advisories(ctx, store.Reach{Under: []resource.UID{s.org}}, f, p, false)
}

// advisoryPages compares first pages, alone and with each filter, in both orders.
func advisoryPages(ctx context.Context, few, many advisoryStore, r *report) error {
	p := page.Request{Size: 50, Order: advisoryOrders[0]}
	some, err := few.lists.Advisories(ctx, store.Reach{Under: []resource.UID{few.org}}, resource.AdvisoryFilter{}, p,
		true)
	if err != nil {
		return err
	}
	one := some.Items[len(some.Items)/2]
	for _, a := range some.Items {
		if len(a.Aliases) > 0 && len(a.Affected) > 0 {
			one = a
		}
	}
	filters := []struct {
		name string
		resource.AdvisoryFilter
	}{
		{"alone", resource.AdvisoryFilter{}},
		{"advisory_ids", resource.AdvisoryFilter{IDs: []string{one.ID}}},
		{"legacy_advisory_ids", resource.AdvisoryFilter{LegacyIDs: []string{"OLD-" + one.ID}}},
		{"artifact_names", resource.AdvisoryFilter{ArtifactNames: []string{"stdlib"}}},
		{"artifact_types", resource.AdvisoryFilter{ArtifactTypes: []string{one.ArtifactType}}},
		{"artifact_architectures", resource.AdvisoryFilter{ArtifactArchitectures: []string{"x86_64"}}},
		{"component_names", resource.AdvisoryFilter{ComponentNames: []string{"part8"}}},
		{"component_types", resource.AdvisoryFilter{ComponentTypes: []string{"go-module"}}},
		{"component_locations", resource.AdvisoryFilter{ComponentLocations: []string{"/usr/bin/part8"}}},
		{"aliases", resource.AdvisoryFilter{Aliases: one.Aliases[:min(1, len(one.Aliases))]}},
		{"event_review_states", resource.AdvisoryFilter{ReviewStates: []resource.ReviewState{resource.ReviewPending}}},
		{"event_authors", resource.AdvisoryFilter{EventAuthors: []string{"author3"}}},
		{"exclude_event_authors", resource.AdvisoryFilter{NotEventAuthors: []string{"author3"}}},
		{"event_reviewers", resource.AdvisoryFilter{EventReviewers: []string{"reviewer1"}}},
		{"event_types", resource.AdvisoryFilter{EventTypes: []resource.AdvisoryEventType{resource.EventFixed}}},
		{"latest_event_type", resource.AdvisoryFilter{LatestEventType: resource.EventDetection}},
	}
	for _, f := range filters {
		for _, o := range advisoryOrders {
			read := func(from advisoryStore) operation {
				return func(ctx context.Context, _ int) error {
					_, err := from.list(ctx, f.AdvisoryFilter, page.Request{Size: 50, Order: o})
					return err
				}
			}
			p, err := alternate(ctx, read(many), read(few))
			if err != nil {
				return err
			}
			r.slower("advisories: page by "+o.Field+", "+f.name, p, 2)
		}
	}
	return nil
}

// freeText measures queries that match nearly all advisories, some, one, and none.
func freeText(ctx context.Context, o advisoryStore, r *report) error {
	for _, text := range []string{"cve", "stdlib", "2026-1", "nothing like it"} {
		for _, order := range advisoryOrders {
			var took []time.Duration
			var total int64
			for range 12 {
				begin := time.Now()
				p, err := o.list(ctx, resource.AdvisoryFilter{Query: text}, page.Request{Size: 50, Order: order})
				if err != nil {
					return err
				}
				took, total = append(took, time.Since(begin)), p.Total
			}
			what := fmt.Sprintf("advisories: query %q by %s (%d found)", text, order.Field, total)
			r.under(what, median(took[2:]).Seconds(), freeTextTarget, seconds)
		}
	}
	return nil
}

// versionQueries measures queries about versions of packages with advisories.
func versionQueries(ctx context.Context, o advisoryStore, r *report) error {
	var names []string
	p := page.Request{Size: page.MaxSize, Order: page.Order{Field: "uid"}}
	for i := range 20 {
		p.Skip = i * o.rows / 20 * 9 / 10
		got, err := o.list(ctx, resource.AdvisoryFilter{}, p)
		if err != nil {
			return err
		}
		for _, a := range got.Items {
			names = append(names, a.ArtifactName)
		}
	}
	ask := func(_ context.Context, _ int) error {
		p := advisory.Package{Ecosystem: "Go", Name: names[rand.IntN(len(names))], Version: "1.20.0"}
		_, err := o.Query(o.ctx, resource.UIDFilter{}, p)
		return err
	}
	var rates []float64
	for range rounds + 1 {
		rate, _, err := rateOf(ctx, roundTime, ask)
		if err != nil {
			return err
		}
		rates = append(rates, rate)
	}
	r.over("advisories: questions about a version, a second", median(rates[1:]), queryTarget)
	return nil
}

// importInServer imports records over the API of a server in a process of its own, and reports
// the memory of the server.
func importInServer(ctx context.Context, b *bench, r *report) (err error) {
	p, err := b.holdfastd(ctx, "", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	path, err := b.archive(b.rows)
	if err != nil {
		return err
	}
	begin := time.Now()
	created, err := sendArchive(ctx, p, path)
	if err != nil {
		return err
	}
	if created != int64(b.rows) {
		return fmt.Errorf("the server has taken %d of %d records", created, b.rows)
	}
	r.over("advisories: import over the API, records a second", float64(b.rows)/time.Since(begin).Seconds(), 0)
	peak, err := p.memory("VmHWM")
	if err != nil {
		return err
	}
	r.under(fmt.Sprintf("advisories: most memory of a server importing %d", b.rows), peak, importMemory, megabytes)
	return nil
}

// sendArchive imports a file over gRPC, and returns how many advisories were created.
func sendArchive(ctx context.Context, p *process, path string) (created int64, err error) {
	conn, err := dial(p.address)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+p.dev.Token)
	stream, err := advisoriespb.NewAdvisoryWritingServiceClient(conn).ImportAdvisories(ctx)
	if err != nil {
		return 0, err
	}
	sent := make(chan error, 1)
	go func() { sent <- sendFile(stream, string(p.dev.Organization), path) }()
	for {
		m, err := stream.Recv()
		if err != nil {
			if err := <-sent; err != nil {
				return 0, err
			}
			if !errors.Is(err, io.EOF) {
				return created, err
			}
			return created, nil
		}
		created = m.GetCounts().GetCreated()
	}
}

// openSized opens a file and returns its size.
func openSized(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// sendFile sends one document in chunks.
func sendFile(stream advisoriespb.AdvisoryWritingService_ImportAdvisoriesClient, group, path string) (err error) {
	type request = advisoriespb.ImportAdvisoriesRequest
	f, size, err := openSized(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	document := &advisoriespb.ImportAdvisoriesRequest_Document{Name: filepath.Base(path), Size: size}
	for _, r := range []*request{
		{Part: &advisoriespb.ImportAdvisoriesRequest_Parent{Parent: group}},
		{Part: &advisoriespb.ImportAdvisoriesRequest_Document_{Document: document}},
	} {
		if err := stream.Send(r); err != nil {
			return err
		}
	}
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			chunk := &request{Part: &advisoriespb.ImportAdvisoriesRequest_Data{Data: buf[:n]}}
			if err := stream.Send(chunk); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return stream.CloseSend()
		}
		if err != nil {
			return err
		}
	}
}
