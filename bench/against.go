package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/resource"
)

const (
	// notSlower is the share of the earlier version's rate that this one has to reach,
	// with a margin for noise.
	notSlower = 0.95

	// Many short rounds, so that other work of the machine affects both versions. With
	// those of race, comparing a version with itself gave 0.77 to 1.04 on a busy machine.
	againstRounds = 200
	againstTurn   = 50 * time.Millisecond
)

// againstEarlier compares this version with the earlier one of -against. Both run in their
// own processes and on their own databases, which are prepared alike, and each is idle while
// the other is measured.
func againstEarlier(ctx context.Context, b *bench, e engine, r *report) (err error) {
	if b.against == "" {
		r.note("Not compared with an earlier version: -against PATH names its holdfastd.")
		return nil
	}
	p, err := newPlatform(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	var releases [2]*release
	for i, of := range []struct{ name, dataset, binary string }{
		{"this version", "against_new", ""}, {"the earlier version", "against_old", b.against},
	} {
		if releases[i], err = b.release(ctx, e, of.dataset, of.binary, p); err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
		releases[i].name = of.name
		defer func() { err = errors.Join(err, releases[i].stop()) }()
	}
	for _, t := range tasks {
		if err := t.compare(ctx, releases, r); err != nil {
			return err
		}
	}
	refreshed, err := alternate(ctx, releases[0].refreshToken, releases[1].refreshToken)
	if err != nil {
		return err
	}
	r.slower("against: refresh, one session", refreshed, 0)
	return nil
}

// A task is a request that clients send to both releases.
type task struct {
	what  string
	least float64 // of the earlier version's rate; 0 means no target
	of    func(*release) operation
}

var tasks = []task{
	{"exchange, by subject", notSlower, func(v *release) operation { return v.exchange(v.bySubject) }},
	{"exchange, by pattern", notSlower, func(v *release) operation { return v.exchange(v.byPattern) }},
	{"exchange, through a provider", notSlower, func(v *release) operation { return v.exchange(v.byProvider) }},
	{"check, a GET that is denied", notSlower, (*release).getDenied},
	{"check, GetGroup over gRPC that is denied", notSlower, (*release).getDeniedGRPC},
	{"GET of a group", 0, (*release).getGroup},
	{"GetGroup over gRPC", 0, (*release).getGroupGRPC},
	{"pull, GET of a manifest by tag", notSlower, (*release).getManifest},
	{"pull, GET of a small blob", notSlower, (*release).getBlob},
}

// compare reports the rates of both releases, and the processor time of their servers per
// request, which depends less on other work of the machine.
func (t task) compare(ctx context.Context, releases [2]*release, r *report) error {
	var do [2]operation
	var done [2]atomic.Int64
	var used [2]time.Duration
	for i, v := range releases {
		one := t.of(v)
		do[i] = func(ctx context.Context, client int) error {
			done[i].Add(1)
			if err := one(ctx, client); err != nil {
				return fmt.Errorf("%s, %s: %w", v.name, t.what, err)
			}
			return nil
		}
		var err error
		if used[i], err = v.processor(); err != nil {
			return err
		}
	}
	p, err := raceOf(ctx, againstRounds, againstTurn, do[0], do[1])
	if err != nil {
		return err
	}
	r.faster("against: "+t.what, p, t.least)
	for i, v := range releases {
		now, err := v.processor()
		if err != nil {
			return err
		}
		used[i] = (now - used[i]) / time.Duration(max(done[i].Load(), 1))
	}
	each := pair{a: used[0], b: used[1], ratio: float64(used[0]) / float64(used[1])}
	r.slower("against: "+t.what+", processor time of the server", each, 0)
	return nil
}

// exchange exchanges tokens.
func (v *release) exchange(all []credential) operation {
	next := pick(all)
	return func(ctx context.Context, client int) error {
		_, err := v.exchangeOne(ctx, next(client))
		return err
	}
}

// strange is a group below which nobody has a grant.
var strange = string(resource.NewRoot().NewChild())

// getDenied asks for a group that the caller may not see: it is refused by the
// check of the token and of the grants, and nothing is read.
func (v *release) getDenied() operation {
	next := pick(v.readers)
	return func(ctx context.Context, client int) error {
		q := next(client)
		_, _, err := v.do(ctx, http.StatusForbidden, http.MethodGet, "/iam/v2beta1/groups/"+strange, nil, "Authorization", "Bearer "+q.token)
		return err
	}
}

func (v *release) getDeniedGRPC() operation {
	next := pick(v.readers)
	groups := iampb.NewGroupsServiceClient(v.conn)
	return func(ctx context.Context, client int) error {
		q := next(client)
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+q.token)
		_, err := groups.GetGroup(ctx, &iampb.GetGroupRequest{Uid: strange})
		if status.Code(err) != codes.PermissionDenied {
			return fmt.Errorf("a group of others: %w", err)
		}
		return nil
	}
}

// getGroup reads groups with tokens that the server has cached.
func (v *release) getGroup() operation {
	next := pick(v.readers)
	return func(ctx context.Context, client int) error {
		q := next(client)
		path := "/iam/v2beta1/groups/" + q.group
		_, _, err := v.do(ctx, http.StatusOK, http.MethodGet, path, nil, "Authorization", "Bearer "+q.token)
		return err
	}
}

func (v *release) getGroupGRPC() operation {
	next := pick(v.readers)
	groups := iampb.NewGroupsServiceClient(v.conn)
	return func(ctx context.Context, client int) error {
		q := next(client)
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+q.token)
		_, err := groups.GetGroup(ctx, &iampb.GetGroupRequest{Uid: q.group})
		return err
	}
}

func (v *release) getManifest() operation {
	return v.pull("manifests/"+pulledTag, "Accept", ociImage)
}

func (v *release) getBlob() operation {
	return v.pull("blobs/" + digestOf([]byte(smallLayer)))
}

// pull reads a part of the image with a token for the registry.
func (v *release) pull(what string, headers ...string) operation {
	path := "/v2/" + v.prefix + pulledRepo + "/" + what
	return func(ctx context.Context, _ int) error {
		_, _, err := v.do(ctx, http.StatusOK, http.MethodGet, path, nil, headers...)
		return err
	}
}

// refreshToken refreshes the session of dev mode. A refresh token can be used only once, so
// there is one client.
func (v *release) refreshToken(ctx context.Context, _ int) error {
	path := "/sts/exchange_refresh_token?" + url.Values{"aud": {v.url()}}.Encode()
	var got struct{ RefreshToken struct{ Token string } }
	err := v.doJSON(ctx, http.MethodPost, path, nil, &got, "Authorization", "Bearer "+v.dev.RefreshToken)
	v.dev.RefreshToken = got.RefreshToken.Token
	return err
}
