package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iamv1pb "github.com/holdfast-dev/holdfast/gen/iam/v1"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

// versionPage is the length of the list that is compared.
const versionPage = 50

// versions compares the other versions of the API with v2beta1: reading a group, listing a
// page of groups, and creating one, over HTTP and gRPC.
func versions(ctx context.Context, m *measurement) {
	v := m.instance(ctx, "versions")
	for range versionPage {
		must(v.post(ctx, "/iam/v2beta1/groups/"+string(v.folders[0]), `{"name": "`+newName()+`"}`))
	}
	conn := m.dial(v.address)
	authorized := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+v.token)
	for _, c := range v.comparisons() {
		m.faster("versions: "+c.what+", JSON", race(ctx, v.overJSON(c.ours), v.overJSON(c.base)), 0.9)
		m.faster("versions: "+c.what+", gRPC", race(authorized, overGRPC(conn, c.ours), overGRPC(conn, c.base)), 0.9)
	}
}

// A work is a call that can be made over both protocols.
type work struct {
	verb, path string
	method     string
	in         func() proto.Message
	out        func() proto.Message
}

// A comparison is a call in another version and in v2beta1.
type comparison struct {
	what       string
	ours, base work
}

// comparisons returns what is compared. Version 1 has no method to get a group, so it is
// compared with a list.
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
			return &iampb.CreateGroupRequest{Parent: v.into(), Group: &iampb.Group{Name: newName()}}
		}, get.out}
	listV1 := func(path string, f *iamv1pb.GroupFilter) work {
		return work{http.MethodGet, path, iamv1pb.Groups_List_FullMethodName, func() proto.Message { return f },
			func() proto.Message { return new(iamv1pb.GroupList) }}
	}
	createV1 := work{http.MethodPost, "/iam/v1/groups/", iamv1pb.Groups_Create_FullMethodName,
		func() proto.Message {
			return &iamv1pb.CreateGroupRequest{Parent: v.into(), Group: &iamv1pb.Group{Name: newName()}}
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

func newName() string { return fmt.Sprintf("n-%016x", rand.Uint64()) }

func random[T any](all []T) T { return all[rand.IntN(len(all))] }

// into returns the folder to create a group in, which is none of those that are listed.
func (v *instance) into() string { return string(random(v.folders[1:])) }

// overJSON makes a call over HTTP.
func (v *instance) overJSON(w work) operation {
	if w.verb == http.MethodGet {
		return v.getter(w.path)
	}
	return func(ctx context.Context, _ int) error {
		_, err := v.post(ctx, w.path+v.into(), `{"name": "`+newName()+`"}`)
		return err
	}
}

// overGRPC makes a call over gRPC.
func overGRPC(conn *grpc.ClientConn, w work) operation {
	return func(ctx context.Context, _ int) error { return conn.Invoke(ctx, w.method, w.in(), w.out()) }
}
