"""Bottom-up attention: the Visual Genome Faster R-CNN behind most region features (Anderson et al., CVPR 2018)."""
