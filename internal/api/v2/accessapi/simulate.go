package accessapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	accesspb "github.com/holdfast-dev/holdfast/gen/access/v1"
	"github.com/holdfast-dev/holdfast/internal/access/simulation"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

func (s *server) Simulate(ctx context.Context, r *accesspb.SimulateRequest) (*accesspb.SimulateResponse, error) {
	changes := r.GetChanges()
	if n := len(changes); n == 0 || n > simulation.MaxChanges {
		return nil, fault.Field("changes", "must have 1 to %d changes", simulation.MaxChanges)
	}
	sim := simulation.Changes{}
	for i, c := range changes {
		if c.GetChange() == nil {
			return nil, fault.Field(fmt.Sprintf("changes[%d]", i), "is not a change that can be simulated")
		}
		switch c := c.GetChange().(type) {
		case *accesspb.SimulatedChange_DeleteExternalGroupRoleMapping:
			sim.Providers = append(sim.Providers, resource.UID(c.DeleteExternalGroupRoleMapping.GetUid()).Parent())
		case *accesspb.SimulatedChange_CreateExternalGroupRoleMapping, *accesspb.SimulatedChange_CreateGroupInvite,
			*accesspb.SimulatedChange_UpdateGroupInvite, *accesspb.SimulatedChange_CreateIdentityProvider,
			*accesspb.SimulatedChange_UpdateIdentityProvider:
			sim.UnknownUsers = true
		}
	}
	slices.Sort(sim.Providers)
	sim.Providers = slices.Compact(sim.Providers)
	sim.Apply = func(ctx context.Context) error {
		for i, c := range changes {
			if err := s.apply(ctx, c); err != nil {
				return inChange(i, len(changes), err)
			}
		}
		return nil
	}
	got, err := s.Simulation.Run(ctx, sim)
	if err != nil {
		return nil, err
	}
	return ConsequencesOf(got), nil
}

// inChange returns the error of the change with index i of n changes. It puts the path of
// the change before the fields that the error names, and names the change in the message
// if there are several.
func inChange(i, n int, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	nested := *f
	nested.Metadata = maps.Clone(f.Metadata)
	if nested.Metadata == nil {
		nested.Metadata = map[string]string{}
	}
	nested.Metadata["change"] = strconv.Itoa(i)
	if n > 1 {
		nested.Message += fmt.Sprintf(" (in changes[%d])", i)
	}
	nested.Fields = slices.Clone(f.Fields)
	for n := range nested.Fields {
		nested.Fields[n].Subject = fmt.Sprintf("changes[%d].%s", i, nested.Fields[n].Subject)
	}
	return &nested
}

// apply calls the API method that makes a change.
func (s *server) apply(ctx context.Context, c *accesspb.SimulatedChange) (err error) {
	switch c := c.GetChange().(type) {
	case *accesspb.SimulatedChange_CreateRoleBinding:
		_, err = s.CreateRoleBinding(ctx, c.CreateRoleBinding)
	case *accesspb.SimulatedChange_UpdateRoleBinding:
		_, err = s.UpdateRoleBinding(ctx, c.UpdateRoleBinding)
	case *accesspb.SimulatedChange_DeleteRoleBinding:
		_, err = s.DeleteRoleBinding(ctx, c.DeleteRoleBinding)
	case *accesspb.SimulatedChange_BatchCreateRoleBindings:
		_, err = s.BatchCreateRoleBindings(ctx, c.BatchCreateRoleBindings)
	case *accesspb.SimulatedChange_CreateRole:
		_, err = s.CreateRole(ctx, c.CreateRole)
	case *accesspb.SimulatedChange_UpdateRole:
		_, err = s.UpdateRole(ctx, c.UpdateRole)
	case *accesspb.SimulatedChange_DeleteRole:
		_, err = s.DeleteRole(ctx, c.DeleteRole)
	case *accesspb.SimulatedChange_CreateGroup:
		_, err = s.CreateGroup(ctx, c.CreateGroup)
	case *accesspb.SimulatedChange_UpdateGroup:
		_, err = s.UpdateGroup(ctx, c.UpdateGroup)
	case *accesspb.SimulatedChange_DeleteGroup:
		_, err = s.DeleteGroup(ctx, c.DeleteGroup)
	default:
		err = s.applyToIdentities(ctx, c)
	}
	return err
}

// applyToIdentities calls the API method that changes an identity, or a resource by which
// identities join or sign in.
func (s *server) applyToIdentities(ctx context.Context, change any) (err error) {
	switch c := change.(type) {
	case *accesspb.SimulatedChange_CreateIdentity:
		_, err = s.CreateIdentity(ctx, c.CreateIdentity)
	case *accesspb.SimulatedChange_UpdateIdentity:
		_, err = s.UpdateIdentity(ctx, c.UpdateIdentity)
	case *accesspb.SimulatedChange_DeleteIdentity:
		_, err = s.DeleteIdentity(ctx, c.DeleteIdentity)
	case *accesspb.SimulatedChange_CreateIdentityProvider:
		_, err = s.CreateIdentityProvider(ctx, c.CreateIdentityProvider)
	case *accesspb.SimulatedChange_UpdateIdentityProvider:
		_, err = s.UpdateIdentityProvider(ctx, c.UpdateIdentityProvider)
	case *accesspb.SimulatedChange_DeleteIdentityProvider:
		_, err = s.DeleteIdentityProvider(ctx, c.DeleteIdentityProvider)
	case *accesspb.SimulatedChange_CreateExternalGroupRoleMapping:
		_, err = s.CreateExternalGroupRoleMapping(ctx, c.CreateExternalGroupRoleMapping)
	case *accesspb.SimulatedChange_DeleteExternalGroupRoleMapping:
		_, err = s.DeleteExternalGroupRoleMapping(ctx, c.DeleteExternalGroupRoleMapping)
	case *accesspb.SimulatedChange_CreateGroupInvite:
		_, err = s.CreateGroupInvite(ctx, c.CreateGroupInvite)
	case *accesspb.SimulatedChange_UpdateGroupInvite:
		_, err = s.UpdateGroupInvite(ctx, c.UpdateGroupInvite)
	case *accesspb.SimulatedChange_DeleteGroupInvite:
		_, err = s.DeleteGroupInvite(ctx, c.DeleteGroupInvite)
	case *accesspb.SimulatedChange_CreateAccountAssociation:
		_, err = s.CreateAccountAssociation(ctx, c.CreateAccountAssociation)
	case *accesspb.SimulatedChange_UpdateAccountAssociation:
		_, err = s.UpdateAccountAssociation(ctx, c.UpdateAccountAssociation)
	case *accesspb.SimulatedChange_DeleteAccountAssociation:
		_, err = s.DeleteAccountAssociation(ctx, c.DeleteAccountAssociation)
	default:
		err = fault.Field("change", "is not a change that can be simulated")
	}
	return err
}

// ConsequencesOf returns the message about consequences.
func ConsequencesOf(c simulation.Consequences) *accesspb.SimulateResponse {
	return &accesspb.SimulateResponse{
		Gained: wire.Convert(c.Gained.Shown, accessChangeOf), GainedTotal: int32(c.Gained.Total),
		GainedHidden: int32(c.Gained.Hidden), GainedIdentities: int32(c.Gained.Identities),
		Lost: wire.Convert(c.Lost.Shown, accessChangeOf), LostTotal: int32(c.Lost.Total),
		LostHidden: int32(c.Lost.Hidden), LostIdentities: int32(c.Lost.Identities), LostUsedTotal: int32(c.Lost.Used),
		Workloads: wire.Convert(c.Workloads.Shown, boundIdentityOf), WorkloadsTotal: int32(c.Workloads.Total),
		Sessions: wire.Convert(c.Sessions.Shown, func(e simulation.EndedSessions) *accesspb.EndedSessions {
			return &accesspb.EndedSessions{Identity: boundIdentityOf(e.Identity), Count: int32(e.Count)}
		}), SessionsTotal: int32(c.Sessions.Total),
		Pulls: wire.Convert(c.Pulls.Shown, func(p simulation.RefusedPulls) *accesspb.RefusedPulls {
			return &accesspb.RefusedPulls{Identity: boundIdentityOf(p.Identity), RepoUid: string(p.Repo), RepoPath: p.Path,
				Count: int32(p.Count), LastPullTime: wire.Time(p.Last)}
		}), PullsTotal: int32(c.Pulls.Total),
		Complete: len(c.Incomplete) == 0, Reasons: c.Incomplete,
	}
}

func accessChangeOf(c simulation.AccessChange) *accesspb.AccessChange {
	return &accesspb.AccessChange{
		Identity: boundIdentityOf(c.Identity), Capability: c.Capability.String(), Group: boundGroupOf(c.Group),
		LastUseTime: wire.Time(c.LastUse),
	}
}
