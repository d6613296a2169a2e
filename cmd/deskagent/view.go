package main

import (
	"fmt"
	"image"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deskagent/deskagent/scaling"
)

// sizeFlag is WxH in pixels.
type sizeFlag image.Point

func (f *sizeFlag) String() string {
	if *f == (sizeFlag{}) {
		return ""
	}
	return fmt.Sprintf("%dx%d", f.X, f.Y)
}

func (f *sizeFlag) Type() string { return "WxH" }

func (f *sizeFlag) Set(s string) error {
	n, err := numbers(s, "x", 2)
	if err != nil || n[0] < 1 || n[1] < 1 {
		return fmt.Errorf("want WxH in pixels, such as 1280x720")
	}
	*f = sizeFlag{n[0], n[1]}
	return nil
}

// cropFlag is X,Y,W,H in pixels of the screen.
type cropFlag image.Rectangle

func (f *cropFlag) String() string {
	if *f == (cropFlag{}) {
		return ""
	}
	return fmt.Sprintf("%d,%d,%d,%d", f.Min.X, f.Min.Y, f.Max.X-f.Min.X, f.Max.Y-f.Min.Y)
}

func (f *cropFlag) Type() string { return "X,Y,W,H" }

func (f *cropFlag) Set(s string) error {
	n, err := numbers(s, ",", 4)
	if err != nil || n[2] < 1 || n[3] < 1 {
		return fmt.Errorf("want X,Y,W,H in pixels of the screen, such as 300,200,800,600")
	}
	*f = cropFlag(image.Rect(n[0], n[1], n[0]+n[2], n[1]+n[3]))
	return nil
}

func numbers(s, separator string, count int) ([]int, error) {
	parts := strings.Split(s, separator)
	if len(parts) != count {
		return nil, fmt.Errorf("want %d numbers", count)
	}
	n := make([]int, count)
	for i, part := range parts {
		v, err := strconv.ParseUint(part, 10, 20)
		if err != nil {
			return nil, err
		}
		n[i] = int(v)
	}
	return n, nil
}

// viewFlags adds the two flags that make a view of the screen.
func viewFlags(cmd *cobra.Command, v *scaling.View) {
	cmd.Flags().Var((*sizeFlag)(&v.Size), "size", "size of the picture (default that of the part shown, made to fit 1440x900)")
	cmd.Flags().Var((*cropFlag)(&v.Crop), "crop", "part of the screen to show (default all of it)")
}
