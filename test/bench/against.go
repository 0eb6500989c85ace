package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
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
func againstEarlier(ctx context.Context, m *measurement) {
	if m.against == "" {
		m.note("Not compared with an earlier version: -against PATH names its holdfastd.")
		return
	}
	p := m.newPlatform(ctx)
	releases := [2]*release{
		m.release(ctx, "this version", "against_new", "", p),
		m.release(ctx, "the earlier version", "against_old", m.against, p),
	}
	for _, t := range tasks {
		m.compareReleases(ctx, "against: "+t.what, t, releases, notSlower, 0)
	}
	m.slower("against: refresh, one session",
		alternate(ctx, releases[0].refreshToken, releases[1].refreshToken), 0)
}

// A task is a request that clients send to both releases.
type task struct {
	what string
	of   func(*release) operation
}

var tasks = []task{
	exchangeBySubject,
	{"exchange, by pattern", func(v *release) operation { return v.exchanger(v.byPattern) }},
	{"exchange, through a provider", func(v *release) operation { return v.exchanger(v.byProvider) }},
	{"check, a GET that is denied", (*release).getDenied},
	{"check, GetGroup over gRPC that is denied", (*release).getDeniedGRPC},
	pullManifest,
	{"pull, GET of a small blob", func(v *release) operation {
		return v.pull("blobs/" + digestOf([]byte(smallLayer)))
	}},
}

var (
	exchangeBySubject = task{"exchange, by subject", func(v *release) operation { return v.exchanger(v.bySubject) }}
	pullManifest      = task{"pull, GET of a manifest by tag", func(v *release) operation {
		return v.pull("manifests/"+pulledTag, "Accept", ociImage)
	}}
)

// compareReleases reports the rates of both releases, and the processor time of their servers
// per request, which depends less on other work of the machine. least is the target for the
// ratio of the rates, and most that for the ratio of the times; 0 means none.
func (m *measurement) compareReleases(
	ctx context.Context, what string, t task, releases [2]*release, least, most float64,
) {
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
		used[i] = v.processor()
	}
	m.faster(what, raceOf(ctx, againstRounds, againstTurn, do[0], do[1]), least)
	for i, v := range releases {
		used[i] = (v.processor() - used[i]) / time.Duration(max(done[i].Load(), 1))
	}
	m.slower(what+", processor time of the server", newPair(used[0], used[1]), most)
}

// exchanger exchanges tokens.
func (v *release) exchanger(all []credential) operation {
	next := pick(all)
	return func(ctx context.Context, client int) error {
		_, err := v.exchange(ctx, next(client))
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
		_, _, err := v.do(ctx, http.StatusForbidden, http.MethodGet, "/iam/v2beta1/groups/"+strange, nil,
			"Authorization", "Bearer "+next(client))
		return err
	}
}

func (v *release) getDeniedGRPC() operation {
	next := pick(v.readers)
	groups := iampb.NewGroupsServiceClient(v.conn)
	return func(ctx context.Context, client int) error {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+next(client))
		_, err := groups.GetGroup(ctx, &iampb.GetGroupRequest{Uid: strange})
		if status.Code(err) != codes.PermissionDenied {
			return fmt.Errorf("a group of others: %w", err)
		}
		return nil
	}
}

// pull reads a part of the image with a token for the registry.
func (v *release) pull(what string, headers ...string) operation {
	return v.getter("/v2/"+v.prefix+pulledRepo+"/"+what, headers...)
}

// refreshToken refreshes the session of dev mode. A refresh token can be used only once, so
// there is one client.
func (v *release) refreshToken(ctx context.Context, _ int) error {
	path := "/sts/exchange_refresh_token?" + url.Values{"aud": {v.address}}.Encode()
	var got struct{ RefreshToken struct{ Token string } }
	err := v.doJSON(ctx, http.MethodPost, path, nil, &got, "Authorization", "Bearer "+v.dev.RefreshToken)
	v.dev.RefreshToken = got.RefreshToken.Token
	return err
}
