package groups

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iamv1pb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/test/bench/rig"
)

// versionPage is the number of groups in the compared list.
const versionPage = 50

// Versions compares the other versions of the API with v2beta1. It reads a group, lists a page of groups, and creates
// a group, over HTTP and gRPC.
func Versions(ctx context.Context, m *rig.Measurement) {
	v := newInstance(ctx, m, "versions")
	for range versionPage {
		rig.Must(v.Post(ctx, "/iam/v2beta1/groups/"+string(v.folders[0]), `{"name": "`+rig.NewName()+`"}`))
	}
	conn := m.Dial(v.Address)
	authorized := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+v.Token)
	for _, c := range v.comparisons() {
		m.Faster("versions: "+c.what+", JSON", rig.Race(ctx, v.overJSON(c.ours), v.overJSON(c.base)), 0.9)
		m.Faster("versions: "+c.what+", gRPC", rig.Race(authorized, overGRPC(conn, c.ours), overGRPC(conn, c.base)), 0.9)
	}
}

// A work is a call that can be made over HTTP and over gRPC.
type work struct {
	verb, path string
	method     string
	in         func() proto.Message
	out        func() proto.Message
}

// A comparison contains a call in another version, and the same call in v2beta1.
type comparison struct {
	what       string
	ours, base work
}

// comparisons returns the calls to compare. Version 1 has no method to get a group, so its list is compared with the
// list in v2beta1.
func (v *instance) comparisons() []comparison {
	folder := string(v.folders[0])
	children := &commonpb.UIDPFilter{ChildrenOf: folder}
	get := work{http.MethodGet, "/iam/v2beta1/groups/" + folder, iampb.GroupsService_GetGroup_FullMethodName,
		func() proto.Message { return &iampb.GetGroupRequest{Uid: folder} },
		func() proto.Message { return new(iampb.Group) }}
	list := work{http.MethodGet, fmt.Sprintf("/iam/v2beta1/groups?uidp.children_of=%s&page_size=%d", folder,
		versionPage), iampb.GroupsService_ListGroups_FullMethodName,
		func() proto.Message { return &iampb.ListGroupsRequest{Uidp: children, PageSize: versionPage} },
		func() proto.Message { return new(iampb.ListGroupsResponse) }}
	find := work{http.MethodGet, "/iam/v2beta1/groups?uidp.ids=" + folder, list.method,
		func() proto.Message {
			return &iampb.ListGroupsRequest{Uidp: &commonpb.UIDPFilter{Ids: []string{folder}}}
		}, list.out}
	create := work{http.MethodPost, "/iam/v2beta1/groups/", iampb.GroupsService_CreateGroup_FullMethodName,
		func() proto.Message {
			return &iampb.CreateGroupRequest{Parent: v.into(), Group: &iampb.Group{Name: rig.NewName()}}
		}, get.out}
	listV1 := func(path string, f *iamv1pb.GroupFilter) work {
		return work{http.MethodGet, path, iamv1pb.Groups_List_FullMethodName, func() proto.Message { return f },
			func() proto.Message { return new(iamv1pb.GroupList) }}
	}
	createV1 := work{http.MethodPost, "/iam/v1/groups/", iamv1pb.Groups_Create_FullMethodName,
		func() proto.Message {
			return &iamv1pb.CreateGroupRequest{Parent: v.into(), Group: &iamv1pb.Group{Name: rig.NewName()}}
		}, func() proto.Message { return new(iamv1pb.Group) }}
	return []comparison{
		{"one group, v1 / v2beta1 by the same filter",
			listV1("/iam/v1/groups?id="+folder, &iamv1pb.GroupFilter{Id: folder}), find},
		{"list of 50, v1 / v2beta1",
			listV1("/iam/v1/groups?uidp.children_of="+folder, &iamv1pb.GroupFilter{Uidp: children}), list},
		{"create, v1 / v2beta1", createV1, create},
		{"one group, v2 / v2beta1", get.v2(), get},
		{"list of 50, v2 / v2beta1", list.v2(), list},
		{"create, v2 / v2beta1", create.v2(), create},
	}
}

// v2 returns the same call in version 2.
func (w work) v2() work {
	w.path, w.method = strings.Replace(w.path, "/v2beta1/", "/v2/", 1),
		strings.Replace(w.method, ".v2beta1.", ".v2.", 1)
	return w
}

// into returns a folder in which to create a group. It never returns the folder that is listed.
func (v *instance) into() string { return string(rig.Random(v.folders[1:])) }

// overJSON returns an operation that makes a call over HTTP.
func (v *instance) overJSON(w work) rig.Operation {
	if w.verb == http.MethodGet {
		return v.Getter(w.path)
	}
	return func(ctx context.Context, _ int) error {
		_, err := v.Post(ctx, w.path+v.into(), `{"name": "`+rig.NewName()+`"}`)
		return err
	}
}

// overGRPC returns an operation that makes a call over gRPC.
func overGRPC(conn *grpc.ClientConn, w work) rig.Operation {
	return func(ctx context.Context, _ int) error { return conn.Invoke(ctx, w.method, w.in(), w.out()) }
}
