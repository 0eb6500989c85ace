package v2

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	organizationpb "github.com/holdfast-dev/holdfast/gen/organization/v1"
	"github.com/holdfast-dev/holdfast/internal/access/simulation"
	"github.com/holdfast-dev/holdfast/internal/api/v2/accessapi"
	"github.com/holdfast-dev/holdfast/internal/api/wire"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/ops/organization"
)

func (s *server) GetOrganizationState(
	ctx context.Context, r *organizationpb.GetOrganizationStateRequest,
) (*organizationpb.OrganizationState, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	revision, readTime, err := s.organization.State(ctx, parent)
	if err != nil {
		return nil, err
	}
	return &organizationpb.OrganizationState{Revision: revision, ReadTime: wire.Time(readTime)}, nil
}

func (s *server) ApplyOrganization(
	ctx context.Context, r *organizationpb.ApplyOrganizationRequest,
) (*organizationpb.ApplyOrganizationResponse, error) {
	parent, err := resource.ParseUID("parent", r.GetParent())
	if err != nil {
		return nil, err
	}
	if err := s.organization.Require(ctx, parent); err != nil { // before anything about the changes is answered
		return nil, err
	}
	list, err := readChanges(r.GetChanges())
	if err != nil {
		return nil, err
	}
	s.budgets.Charge(ctx, len(list)-1)
	a := &application{parent: parent, requests: s.requests, changes: list}
	order := organization.Order{
		Parent: parent, Revision: r.GetRevision(), Commit: r.GetCommit(), By: r.GetBy(), Plan: r.GetPlan(),
		Digest: digestOf(list), Count: len(list), Changes: a.simulated(),
	}
	if r.GetValidateOnly() {
		planned, err := s.organization.Plan(ctx, order)
		if err != nil {
			return nil, err
		}
		out := consequencesOf(planned)
		out.NotComputed = a.notComputed()
		return &organizationpb.ApplyOrganizationResponse{
			Results: a.results, Revision: r.GetRevision(), Consequences: out, Plan: planned.Plan,
			PlanExpireTime: wire.Time(planned.Expire),
		}, nil
	}
	revision, err := s.organization.Apply(ctx, order)
	if err != nil {
		return nil, err
	}
	return &organizationpb.ApplyOrganizationResponse{Results: a.results, Revision: revision}, nil
}

// A change is one request of ApplyOrganization.
type change struct {
	id, source string
	request    proto.Message
	refers     bool // whether the request may refer to earlier changes
}

const maxSource = 512 // greatest length of Change.source, in bytes

var changeID = regexp.MustCompile(`^[0-9A-Za-z_.:/@-]{1,128}$`)

// reference is the beginning of a text that refers to a change.
const reference = "change:"

// readChanges reads and validates changes.
func readChanges(given []*organizationpb.Change) ([]change, error) {
	if n := len(given); n == 0 || n > organization.MaxChanges {
		return nil, fault.Field("changes", "must have 1 to %d changes", organization.MaxChanges)
	}
	places := make(map[string]int, len(given))
	for i, c := range given {
		field := fmt.Sprintf("changes[%d].", i)
		if !changeID.MatchString(c.GetId()) {
			return nil, fault.Field(field+"id", "must have 1 to 128 letters, digits and characters of -_.:/@")
		}
		if _, twice := places[c.GetId()]; twice {
			return nil, fault.Field(field+"id", "is the id of another change, too")
		}
		if len(c.GetSource()) > maxSource || !utf8.ValidString(c.GetSource()) {
			return nil, fault.Field(field+"source", "must have at most %d bytes", maxSource)
		}
		places[c.GetId()] = i
	}
	list := make([]change, len(given))
	for i, c := range given {
		in, err := requestIn(c.GetRequest())
		if err != nil {
			return nil, inChange(i, c.GetId(), c.GetSource(), err)
		}
		list[i] = change{id: c.GetId(), source: c.GetSource(), request: in}
		err = eachText(in.ProtoReflect(), func(text string) (string, error) {
			id, ok := strings.CutPrefix(text, reference)
			place, known := places[id]
			if ok && known && place >= i {
				return "", fault.Field("request", "refers to the change %q, which is not an earlier one", id)
			}
			list[i].refers = list[i].refers || ok && known
			return text, nil
		})
		if err != nil {
			return nil, inChange(i, c.GetId(), c.GetSource(), err)
		}
	}
	return list, nil
}

// requestIn returns the request in an Any.
func requestIn(a *anypb.Any) (proto.Message, error) {
	name := a.MessageName()
	if !applicable[name] {
		return nil, fault.Field("request", "is not a request that can be applied")
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		return nil, fault.Field("request", "is not a request that can be applied")
	}
	in := kind.New().Interface()
	const depth = 100 // levels of nested messages
	if (proto.UnmarshalOptions{RecursionLimit: depth}).Unmarshal(a.GetValue(), in) != nil {
		return nil, fault.Field("request", "is not a message of its type")
	}
	if r, ok := in.(interface{ GetValidateOnly() bool }); ok && r.GetValidateOnly() {
		return nil, fault.Field("request.validate_only", "must not be set; set it for all changes")
	}
	return in, nil
}

// eachText replaces each string in a message, except keys of maps, by the result of f.
func eachText(m protoreflect.Message, f func(string) (string, error)) (err error) {
	replace := func(kind protoreflect.Kind, v protoreflect.Value, set func(protoreflect.Value)) bool {
		switch kind {
		case protoreflect.StringKind:
			var text string
			if text, err = f(v.String()); err == nil && text != v.String() {
				set(protoreflect.ValueOfString(text))
			}
		case protoreflect.MessageKind:
			err = eachText(v.Message(), f)
		}
		return err == nil
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			values := v.Map()
			values.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				return replace(fd.MapValue().Kind(), v, func(v protoreflect.Value) { values.Set(k, v) })
			})
		case fd.IsList():
			for i, list := 0, v.List(); i < list.Len() && err == nil; i++ {
				replace(fd.Kind(), list.Get(i), func(v protoreflect.Value) { list.Set(i, v) })
			}
		default:
			replace(fd.Kind(), v, func(v protoreflect.Value) { m.Set(fd, v) })
		}
		return err == nil
	})
	return err
}

// digestOf returns a digest of changes. Equal changes have equal digests however they were encoded.
func digestOf(list []change) (digest [sha256.Size]byte) {
	h := sha256.New()
	add := func(part []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	for _, c := range list {
		body, _ := proto.MarshalOptions{Deterministic: true}.Marshal(c.request) // fails only for invalid UTF-8
		add([]byte(c.id))
		add([]byte(c.request.ProtoReflect().Descriptor().FullName()))
		add(body)
	}
	h.Sum(digest[:0])
	return digest
}

// An application carries out changes.
type application struct {
	parent   resource.UID
	requests requests
	changes  []change
	results  []*organizationpb.ChangeResult
}

// run carries out all changes in their order.
func (a *application) run(ctx context.Context) error {
	a.results = make([]*organizationpb.ChangeResult, 0, len(a.changes))
	created := make(map[string]string, len(a.changes))
	for i, c := range a.changes {
		uid, err := a.runOne(ctx, c, created)
		if err != nil {
			return inChange(i, c.id, c.source, err)
		}
		created[c.id] = uid
		a.results = append(a.results, &organizationpb.ChangeResult{Id: c.id, Uid: uid})
	}
	return nil
}

// runOne carries out a change and returns the UID of its result.
func (a *application) runOne(ctx context.Context, c change, created map[string]string) (uid string, _ error) {
	in := proto.Clone(c.request) // the request may run again, and its method may keep it
	if c.refers {
		err := eachText(in.ProtoReflect(), func(text string) (string, error) {
			if id, ok := strings.CutPrefix(text, reference); ok {
				if uid, ok := created[id]; ok {
					return uid, nil
				}
			}
			return text, nil
		})
		if err != nil {
			return "", err
		}
	}
	target, err := resource.ParseUID("request", string(targetOf(in.ProtoReflect())))
	if err != nil {
		return "", fault.Field("request", "must name the uid of what it changes, or of the group in which it creates")
	}
	_, deletes := in.(*iampb.DeleteGroupRequest)
	if !a.parent.Covers(target) || deletes && target == a.parent {
		return "", fault.Field("request", "changes %s, which is not below %s", target, a.parent)
	}
	out, err := a.requests.call(ctx, in)
	if err != nil {
		return "", err
	}
	return string(textField(out.ProtoReflect(), "uid")), nil
}

// simulated returns the changes for a simulation.
func (a *application) simulated() simulation.Changes {
	c := simulation.Changes{Apply: a.run}
	for _, change := range a.changes {
		switch r := change.request.(type) {
		case *iampb.DeleteExternalGroupRoleMappingRequest:
			c.Providers = append(c.Providers, resource.UID(r.GetUid()).Parent())
		case *iampb.CreateExternalGroupRoleMappingRequest, *iampb.CreateIdentityProviderRequest,
			*iampb.UpdateIdentityProviderRequest:
			c.UnknownUsers = true
		}
	}
	slices.Sort(c.Providers)
	c.Providers = slices.Compact(c.Providers)
	return c
}

// notComputed returns the names of the effects that the changes may have and that nobody has computed.
func (a *application) notComputed() (names []string) {
	effects := map[string]string{
		"Rule": "PULL_RULES", "Exception": "PULL_RULES", "Retention": "RETENTION", "Signer": "TRUST",
	}
	found := map[string]bool{}
	for _, c := range a.changes {
		name := string(c.request.ProtoReflect().Descriptor().Name())
		for kind, effect := range effects {
			if strings.HasSuffix(name, kind+"Request") && !strings.Contains(name, "AccessRule") {
				found[effect] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// inChange returns the error of a change. It names the change and its source.
func inChange(i int, id, source string, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	nested := *f
	nested.Metadata = maps.Clone(f.Metadata)
	if nested.Metadata == nil {
		nested.Metadata = map[string]string{}
	}
	nested.Metadata["change"] = id
	where := fmt.Sprintf("changes[%d]", i)
	if source != "" {
		nested.Metadata["source"], where = source, source
	}
	nested.Message += " (in " + where + ")"
	nested.Fields = slices.Clone(f.Fields)
	for n := range nested.Fields {
		nested.Fields[n].Subject = fmt.Sprintf("changes[%d].%s", i, nested.Fields[n].Subject)
	}
	return &nested
}

func consequencesOf(p organization.Planned) *organizationpb.Consequences {
	c := accessapi.ConsequencesOf(p.Consequences)
	return &organizationpb.Consequences{
		Gained: c.GetGained(), GainedTotal: c.GetGainedTotal(), GainedHidden: c.GetGainedHidden(),
		GainedIdentities: c.GetGainedIdentities(), Lost: c.GetLost(), LostTotal: c.GetLostTotal(),
		LostHidden: c.GetLostHidden(), LostIdentities: c.GetLostIdentities(), LostUsedTotal: c.GetLostUsedTotal(),
		Workloads: c.GetWorkloads(), WorkloadsTotal: c.GetWorkloadsTotal(), Sessions: c.GetSessions(),
		SessionsTotal: c.GetSessionsTotal(), Pulls: c.GetPulls(), PullsTotal: c.GetPullsTotal(),
		Complete: c.GetComplete(), Reasons: c.GetReasons(), Owners: int32(p.Owners),
	}
}

func appliedOf(a resource.AppliedChanges) *organizationpb.AppliedOrganization {
	return &organizationpb.AppliedOrganization{
		Uid: string(a.UID), Changes: int32(a.Changes), Commit: a.Commit, By: a.By, Planned: a.Planned,
	}
}
