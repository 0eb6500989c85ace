package program

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

const (
	// notSlower is the ratio to the earlier version's rate that this version must reach. It leaves a margin for
	// noise.
	notSlower = 0.95

	// There are many short rounds, so that other programs on the machine affect both versions alike. With the rounds of
	// Race, comparing a version with itself gave ratios from 0.77 to 1.04 on a busy machine.
	againstRounds = 200
	againstTurn   = 50 * time.Millisecond
)

// Against compares this version with the earlier version that the flag -against names. Each version has a process and
// a database of its own. Both databases have the same content. Each version is idle while the other is measured.
func Against(ctx context.Context, m *rig.Measurement) {
	if m.Against == "" {
		m.Note("Not compared with an earlier version: -against PATH names its holdfastd.")
		return
	}
	p := m.NewPlatform(ctx)
	releases := [2]*release{
		startRelease(ctx, m, "this version", "against_new", "", p),
		startRelease(ctx, m, "the earlier version", "against_old", m.Against, p),
	}
	for _, t := range tasks {
		compareReleases(ctx, m, "against: "+t.what, t, releases, notSlower, 0)
	}
	m.Slower("against: refresh, one session",
		rig.Alternate(ctx, releases[0].refreshToken, releases[1].refreshToken), 0)
}

// A task is a kind of request that clients send to both releases.
type task struct {
	what      string
	operation func(*release) rig.Operation
}

var tasks = []task{
	exchangeBySubject,
	{"exchange, by pattern", func(v *release) rig.Operation { return v.exchanger(v.byPattern) }},
	{"exchange, through a provider", func(v *release) rig.Operation { return v.exchanger(v.byProvider) }},
	{"check, a GET that is denied", (*release).getDenied},
	{"check, GetGroup over gRPC that is denied", (*release).getDeniedGRPC},
	pullManifest,
	{"pull, GET of a small blob", func(v *release) rig.Operation {
		return v.pull("blobs/" + rig.DigestOf([]byte(rig.SmallLayer)))
	}},
	{"write, a new group", (*release).createGroup},
	{"write, PATCH of a group", (*release).updateGroup},
	{"push, PUT of a manifest by tag", (*release).push},
}

var (
	exchangeBySubject = task{"exchange, by subject", func(v *release) rig.Operation { return v.exchanger(v.bySubject) }}
	pullManifest      = task{"pull, GET of a manifest by tag", func(v *release) rig.Operation {
		return v.pull("manifests/"+pulledTag, "Accept", rig.ImageMediaType)
	}}
)

// compareReleases reports the rates of both releases, and the processor time of their servers per request. The
// processor time depends less on other programs on the machine. least is the target for the ratio of the rates, and
// most is the target for the ratio of the processor times; 0 means no target.
func compareReleases(
	ctx context.Context, m *rig.Measurement, what string, t task, releases [2]*release, least, most float64,
) {
	var do [2]rig.Operation
	var done [2]atomic.Int64
	var used [2]time.Duration
	for i, v := range releases {
		one := t.operation(v)
		do[i] = func(ctx context.Context, client int) error {
			done[i].Add(1)
			if err := one(ctx, client); err != nil {
				return fmt.Errorf("%s, %s: %w", v.name, t.what, err)
			}
			return nil
		}
		used[i] = v.ProcessorTime()
	}
	m.Faster(what, rig.RaceRounds(ctx, againstRounds, againstTurn, do[0], do[1]), least)
	for i, v := range releases {
		used[i] = (v.ProcessorTime() - used[i]) / time.Duration(max(done[i].Load(), 1))
	}
	m.Slower(what+", processor time of the server", rig.NewPair(used[0], used[1]), most)
}

// exchanger returns an operation that exchanges one of the credentials for a token.
func (v *release) exchanger(credentials []rig.Credential) rig.Operation {
	next := rig.Distribute(credentials)
	return func(ctx context.Context, client int) error {
		_, err := v.Exchange(ctx, next(client))
		return err
	}
}

// strange is the UID of a group on which nobody has a grant.
var strange = string(resource.NewRoot().NewChild())

// getDenied returns an operation that reads a group that the caller may not see. The server checks the token and the
// grants, refuses the request, and reads nothing from the database.
func (v *release) getDenied() rig.Operation {
	next := rig.Distribute(v.readers)
	return func(ctx context.Context, client int) error {
		_, _, err := v.Do(ctx, http.StatusForbidden, http.MethodGet, "/iam/v2beta1/groups/"+strange, nil,
			"Authorization", "Bearer "+next(client))
		return err
	}
}

func (v *release) getDeniedGRPC() rig.Operation {
	next := rig.Distribute(v.readers)
	groups := iampb.NewGroupsServiceClient(v.conn)
	return func(ctx context.Context, client int) error {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+next(client))
		_, err := groups.GetGroup(ctx, &iampb.GetGroupRequest{Uid: strange})
		if status.Code(err) != codes.PermissionDenied {
			return fmt.Errorf("GetGroup of a hidden group, want PermissionDenied: %w", err)
		}
		return nil
	}
}

// pull returns an operation that reads a part of the image with the registry token.
func (v *release) pull(what string, headers ...string) rig.Operation {
	return v.Getter("/v2/"+v.Prefix+pulledRepo+"/"+what, headers...)
}

// createGroup returns an operation that creates a group in a folder.
func (v *release) createGroup() rig.Operation {
	var n atomic.Int64
	return func(ctx context.Context, client int) error {
		body := fmt.Sprintf(`{"name": "new-%d"}`, n.Add(1))
		_, err := v.Post(ctx, "/iam/v2beta1/groups/"+string(v.folders[client%len(v.folders)]), body)
		return err
	}
}

// updateGroup returns an operation that changes a folder. Each client has a folder of its own.
func (v *release) updateGroup() rig.Operation {
	var n atomic.Int64
	return func(ctx context.Context, client int) error {
		path := "/iam/v2beta1/groups/" + string(v.folders[client%len(v.folders)]) + "?updateMask=description"
		body := fmt.Sprintf(`{"description": "change %d"}`, n.Add(1))
		_, _, err := v.Do(ctx, http.StatusOK, http.MethodPatch, path, strings.NewReader(body))
		return err
	}
}

// push returns an operation that pushes a new manifest with a new tag.
func (v *release) push() rig.Operation {
	var n atomic.Int64
	return func(ctx context.Context, _ int) error {
		return v.PutManifest(ctx, pulledRepo, fmt.Sprint("new-", n.Add(1)), v.nextManifest())
	}
}

// refreshToken refreshes the session that dev mode created. A refresh token can be used only once, so only one client
// may call it.
func (v *release) refreshToken(ctx context.Context, _ int) error {
	path := "/sts/exchange_refresh_token?" + url.Values{"aud": {v.Address}}.Encode()
	var got struct{ RefreshToken struct{ Token string } }
	err := v.DoJSON(ctx, http.MethodPost, path, nil, &got, "Authorization", "Bearer "+v.Dev.RefreshToken)
	v.Dev.RefreshToken = got.RefreshToken.Token
	return err
}
